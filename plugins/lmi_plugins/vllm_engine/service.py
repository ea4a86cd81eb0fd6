"""The vLLM backend's work once vLLM is imported: it turns valid requests into generation steps."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from lmi_core.chats.images import Image, ImagePrompt
from lmi_core.embeddings.backend import EmbeddingModel, Vector
from lmi_core.embeddings.request import ValidEmbedding
from lmi_core.engines.extended_parameters import ExtendedParameters
from lmi_core.engines.merge import merge
from lmi_core.generation import GenerationStep
from lmi_core.request import ValidRequest
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.texts.token_writer import TokenWriter
from lmi_plugins.backends.vllm_fields import fields_of, read_fields
from lmi_plugins.vllm_engine.adapters import VllmAdapters
from lmi_plugins.vllm_engine.embeddings import embedding_model, vectors
from lmi_plugins.vllm_engine.engine import VllmEngine, embeds, translated_errors
from lmi_plugins.vllm_engine.library import (
    MultiModalInput,
    RequestOutput,
    SamplingParams,
    TokensInput,
    image_prompt,
    token_prompt,
)
from lmi_plugins.vllm_engine.outputs.acceptance import AcceptanceLog
from lmi_plugins.vllm_engine.outputs.beam_search import BeamSearch
from lmi_plugins.vllm_engine.outputs.generation import steps
from lmi_plugins.vllm_engine.requests.images import VllmImages, place_images
from lmi_plugins.vllm_engine.requests.parameter_checks import check_beams, check_speculation, check_structural_tag
from lmi_plugins.vllm_engine.requests.passed_fields import check_passed_fields
from lmi_plugins.vllm_engine.requests.reasoning_budget import check_reasoning_budget
from lmi_plugins.vllm_engine.requests.sampling import sampling_params


class VllmService:
    """An engine, its adapters, and what writes its tokens."""

    def __init__(
        self,
        arguments: Mapping[str, str],
        tokenizer: HuggingFaceTokenizer,
        retry_threshold: int,
        max_stream_delay: float,
    ) -> None:
        self._engine = VllmEngine(arguments, retry_threshold, max_stream_delay)
        self._adapters = VllmAdapters(self._engine)
        self._tokenizer = tokenizer
        self.embedding: EmbeddingModel | None = None  # None: the model generates
        self._speculates = "speculative_config" in arguments
        self._acceptance = AcceptanceLog() if "per_request_spec_decode_metrics" in arguments else None

    async def start(self, adapters: Mapping[str, Path]) -> int:
        """Start the engine, and return the maximum length of a sequence. Raise ConfigurationError where that fails."""
        await self._engine.start()
        if embeds(self._engine.vllm):
            self.embedding = embedding_model(self._engine.vllm.model_config)
        own_end = self._tokenizer.pretrained.eos_token_id  # which ends a generation in vLLM too
        self._eos_token_ids = self._engine.eos_token_ids() | frozenset([own_end] if own_end is not None else ())
        self._writer = TokenWriter(self._tokenizer, self._eos_token_ids)
        self.images = VllmImages(self._engine.vllm)
        await self._adapters.load_all(adapters)
        return self._engine.max_length

    async def stop(self) -> None:
        """End the engine."""
        await self._engine.stop()

    def check_health(self) -> None:
        """Raise BackendUnhealthy unless the engine takes requests."""
        _ = self._engine.vllm

    async def given_up(self) -> str:
        """Wait until the engine is not started again, and return why."""
        await self._engine.restarts.given_up.wait()
        return self._engine.restarts.reason

    @property
    def adapters(self) -> Collection[str]:
        """Names of the adapters that requests may use."""
        return self._adapters.names

    async def load_adapter(self, name: str, directory: Path) -> None:
        """Load an adapter, in place of one of the same name. Raise InvalidAdapter where it does not fit."""
        await self._adapters.load(name, directory)

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter. Raise AdapterNotFound where there is none."""
        self._adapters.unload(name)

    async def place_images(
        self, prompt_ids: list[int], images: Sequence[Image], parameters: Mapping[str, Any]
    ) -> ImagePrompt:
        """Put images into their places in a prompt. Raise InvalidParameter or BackendUnhealthy."""
        return await place_images(self._engine.vllm, prompt_ids, images, read_fields(parameters))

    def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        """Return the steps of a request. Raise InvalidParameter where vLLM refuses one."""
        parameters = request.parameters
        assert isinstance(parameters, ExtendedParameters), parameters
        if self._speculates:
            check_speculation(parameters)
        check_structural_tag(parameters)
        check_reasoning_budget(parameters, self._engine.vllm.model_config.get_vocab_size())
        if parameters.wants_prefill:
            self._adapters.check_prompt_log_probs()
        check_passed_fields(parameters)
        if parameters.num_beams > 1:
            return self._search(request, parameters)
        sequences = [self._sequence(request, parameters, i) for i in range(parameters.num_sequences)]
        return sequences[0] if len(sequences) == 1 else _together(sequences)

    def embed(self, requests: Sequence[ValidEmbedding]) -> AsyncGenerator[Vector, None]:
        """Return the vectors of the requests as they are made. Raise InvalidParameter where vLLM refuses one."""
        return vectors(requests, self._engine, self._adapters)

    def _search(self, request: ValidRequest, parameters: ExtendedParameters) -> AsyncGenerator[GenerationStep, None]:
        check_beams(parameters)
        adapter = self._adapters.find(request.adapter)
        priority = fields_of(parameters).priority

        async def next_token(ids: list[int], asked: SamplingParams) -> RequestOutput:
            outputs = self._engine.generate(_prompt(request, ids), asked, adapter, priority=priority)
            async with aclosing(outputs):
                return await anext(outputs)

        search = BeamSearch(request.prompt_ids, parameters, self._writer, self._eos_token_ids, request.markers)
        return search.steps(next_token)

    def _sequence(
        self, request: ValidRequest, parameters: ExtendedParameters, index: int
    ) -> AsyncGenerator[GenerationStep, None]:
        """Return the steps of one sequence, which is a request of its own to vLLM; the prompt they share is cached."""
        with translated_errors():
            sampling = sampling_params(parameters, index, request.log_probs)
        adapter = self._adapters.find(request.adapter)
        coalesces = not parameters.stop_sequences  # they are looked for in what was read
        priority = fields_of(parameters).priority
        outputs = self._engine.generate(
            _prompt(request, request.prompt_ids), sampling, adapter, coalesces=coalesces, priority=priority
        )
        if self._acceptance is not None:
            outputs = self._acceptance.recorded(request.request_id, outputs)
        return steps(outputs, request.prompt_ids, parameters, self._writer, index, request.markers)


def _prompt(request: ValidRequest, ids: list[int]) -> TokensInput | MultiModalInput:
    assert isinstance(request.parameters, ExtendedParameters), request.parameters
    salt = request.parameters.cache_salt
    if request.image_prompt is None:
        return token_prompt(ids, salt)
    return image_prompt(request.image_prompt.content, ids, salt)


async def _together(sequences: list[AsyncGenerator[GenerationStep, None]]) -> AsyncGenerator[GenerationStep, None]:
    async with aclosing(merge(sequences)) as merged:
        async for _, step in merged:
            yield step
