"""The backend `llama_cpp`: GGUF files in llama.cpp, with its own batching, samplers and grammars."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, PositiveInt

from lmi import (
    Backend,
    BackendSetup,
    BackendUnhealthy,
    ConfigurationError,
    EngineFigures,
    ExtendedParameters,
    GenerationParameters,
    GenerationStep,
    LmiError,
    ModelProperties,
    TokenStream,
    ValidRequest,
    hookimpl,
)

if TYPE_CHECKING:
    from llama_cpp_backend.engine import Engine, Sequence

OBEYED = frozenset(GenerationParameters.model_fields) | {
    "allowed_token_ids",
    "best_of",
    "cache_salt",  # nothing is shared
    "frequency_penalty",
    "guided_choice",
    "guided_json",
    "ignore_eos_token",
    "include_stop_str_in_output",
    "logit_bias",
    "logprobs",
    "min_length",
    "min_p",
    "n",
    "presence_penalty",
    "prompt_logprobs",
    "skip_special_tokens",
    "stop_token_ids",
    "top_n_tokens",
    "truncate",
    "truncation_side",
    "typical_p",
}


class LlamaCppProperties(ModelProperties):
    n_ctx: PositiveInt = Field(8192, description="Tokens in the KV cache, which all running sequences share.")
    n_batch: PositiveInt = Field(512, description="The maximum number of tokens to decode in one step.")
    n_threads: PositiveInt | None = Field(None, description="Threads that compute. Default: one for each CPU.")
    n_gpu_layers: int = Field(-1, description="Layers on GPUs, where llama.cpp is built for some; -1 means all.")


class LlamaCppBackend(Backend[LlamaCppProperties]):
    name = "llama_cpp"
    properties_type = LlamaCppProperties
    parameters_type = ExtendedParameters
    engine: "Engine | None" = None

    @classmethod
    def obeys(cls, parameter: str) -> bool:
        return parameter in OBEYED

    @classmethod
    def downloads(cls, setup: BackendSetup[LlamaCppProperties]) -> Mapping[str, Any]:
        """Return nothing: the file is read as it is."""
        return {}

    @classmethod
    def inspect(cls, setup: BackendSetup[LlamaCppProperties]) -> Iterator[str]:
        try:
            model_file(setup)
        except ConfigurationError as error:
            yield error.message

    async def start(self) -> None:
        from llama_cpp_backend.engine import Engine  # imports llama.cpp

        loop = asyncio.get_running_loop()
        engine = await asyncio.to_thread(Engine, model_file(self.setup), self.setup.properties, loop)
        self.engine, self.tokenizer, self.max_length = engine, engine.vocabulary, engine.max_length

    async def stop(self) -> None:
        if self.engine is not None:
            await asyncio.to_thread(self.engine.stop)

    async def health(self) -> None:
        if self.engine is None or not self.engine.alive:
            raise BackendUnhealthy("llama.cpp's thread has ended; the server's log has the reason")

    def figures(self) -> EngineFigures:
        return EngineFigures() if self.engine is None else self.engine.figures

    async def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        assert self.engine is not None
        steps: asyncio.Queue[GenerationStep | LmiError] = asyncio.Queue()
        sequences = await asyncio.to_thread(self._sequences, request, steps)
        self.engine.add(sequences)
        unfinished = len(sequences)
        try:
            while unfinished:
                step = await steps.get()
                if isinstance(step, LmiError):
                    raise step
                unfinished -= step.finish_reason is not None
                yield step
        finally:
            self.engine.remove(sequences)

    def _sequences(self, request: ValidRequest, steps: "asyncio.Queue[Any]") -> "list[Sequence]":
        """Return the request's sequences, with their grammars compiled."""
        from llama_cpp_backend.engine import Sequence
        from llama_cpp_backend.sampling import Sampler

        assert self.engine is not None
        parameters, vocabulary, ids = request.parameters, self.engine.vocabulary, request.prompt_ids
        assert isinstance(parameters, ExtendedParameters)

        def special_text(token_id: int) -> str:
            text = "" if token_id in vocabulary.end_ids else vocabulary.text(token_id)
            shown = not parameters.skip_special_tokens or any(text in marker for marker in request.markers)
            return text if shown else ""

        return [
            Sequence(
                request,
                parameters,
                index,
                steps,
                Sampler(vocabulary, parameters, ids, index),
                TokenStream(
                    vocabulary.detokenizer(ids),
                    parameters.stop_sequences or (),
                    vocabulary.special_ids,
                    stop_token_sequences=[[token_id] for token_id in parameters.stop_token_ids or ()],
                    include_stop=parameters.include_stop_str_in_output,
                    special_text=special_text,
                    spaces_between_special_tokens=False,
                ),
                TokenStream(vocabulary.detokenizer([]), special_ids=vocabulary.special_ids),
                pending=list(ids),
            )
            for index in range(parameters.num_sequences)
        ]


def model_file(setup: BackendSetup[LlamaCppProperties]) -> Path:
    """Return the GGUF file that `option.model_id` names, or the only one in the model directory."""
    given, folder = setup.properties.model_id, setup.directory
    found = sorted(folder.glob("*.gguf")) if given is None else [folder / given]
    if len(found) != 1 or not found[0].is_file():
        raise ConfigurationError(f"llama_cpp needs one GGUF file: in {folder}, or where option.model_id says")
    return found[0]


@hookimpl
def lmi_register_backends(register: Callable[[type[Backend[Any]]], None]) -> None:
    register(LlamaCppBackend)
