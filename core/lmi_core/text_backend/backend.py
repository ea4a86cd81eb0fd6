"""The base of backends that generate text."""

import asyncio
import inspect
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Collection, Iterable
from contextlib import aclosing
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Final, TypeVar

from lmi_core.backend import Backend
from lmi_core.configuration.model_source import weights_folder
from lmi_core.configuration.properties import ModelProperties
from lmi_core.generation.merge import merge
from lmi_core.generation.output import FinishReason, GenerationStep, Token
from lmi_core.generation.parameters import EngineParameters, ExtendedParameters, GenerationParameters
from lmi_core.generation.request import ValidRequest
from lmi_core.text_backend.texts import read_texts
from lmi_core.text_backend.token_texts import CERTAIN, TextTokens, prompt_tokens
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.texts.word_tokenizer import WordTokenizer

P = TypeVar("P", bound=ModelProperties)

MAX_LENGTH = 8192
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")
# TextBackend implements these; a cache salt does not change answers, and texts have no special tokens.
DONE: Final = frozenset(
    {
        "best_of",
        "cache_salt",
        "include_stop_str_in_output",
        "logprobs",
        "n",
        "prompt_logprobs",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "top_n_tokens",
        "truncate",
        "truncation_side",
    }
)
# Parameters that only the author's `generate` can implement.
LEFT_TO_THE_AUTHOR: Final = ExtendedParameters.model_fields.keys() - GenerationParameters.model_fields.keys() - DONE


def is_inherited(parameters_type: type[GenerationParameters], name: str) -> bool:
    """Return whether neither the author nor TextBackend declares the parameter."""
    if name not in LEFT_TO_THE_AUTHOR:
        return False
    declaring = (base for base in parameters_type.__mro__ if name in inspect.get_annotations(base))
    return next(declaring, None) in (EngineParameters, ExtendedParameters)


class TextBackend(Backend[P]):
    """A backend whose `generate` yields texts; the base takes care of tokens, stop sequences, limits, counts and
    threads.

    A subclass needs a `name` and `generate`. The tokenizer is that of the model's files or, without one, a tokenizer of
    words. The end of a text is a token, as with models; every token's log probability is 0. With a `parameters_type`
    that extends ExtendedParameters, requests that set unsupported parameters, such as `guided_json`, are refused,
    unless `obeyed_parameters` lists them because `generate` supports them.
    """

    properties_type: ClassVar[type[ModelProperties]] = ModelProperties
    obeyed_parameters: ClassVar[Collection[str]] = ()
    max_length: int = MAX_LENGTH

    @abstractmethod
    def generate(self, prompt: str, parameters: Any) -> Iterable[str] | AsyncIterable[str]:
        """Yield the answer's text in pieces of any length, each of which is sent at once.

        An asynchronous generator runs in the event loop, which it must not block; any other iterable is read in its own
        thread. `parameters` are the request's, of the type `parameters_type`. The generator is closed at a stop
        sequence, at `max_new_tokens`, and when the client disconnects; a thread closes it when it yields. Raise an
        LmiError to answer with its message.
        """

    async def start(self) -> None:
        """Load everything that `generate` needs. Raise ConfigurationError if the model directory is at fault."""

    async def stop(self) -> None:
        """Free the resources of `start`."""

    async def health(self) -> None:
        """Raise BackendUnhealthy while requests cannot be answered."""

    @classmethod
    def obeys(cls, parameter: str) -> bool:
        left_out = is_inherited(cls.parameters_type, parameter) and parameter not in cls.obeyed_parameters
        return super().obeys(parameter) and not left_out

    async def finish_start(self) -> None:
        if not hasattr(self, "tokenizer"):
            folder = self._files()
            found = any((folder / name).is_file() for name in TOKENIZER_FILES)
            self.tokenizer = (
                await asyncio.to_thread(HuggingFaceTokenizer.load, str(folder)) if found else WordTokenizer()
            )
        await super().finish_start()

    def steps(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        return merge([self._sequence(request, index) for index in range(request.parameters.num_sequences)])

    def _files(self) -> Path:
        """Return the folder that may have a tokenizer, whether it has weights or not."""
        return weights_folder(self.setup.directory, self.setup.properties) or self.setup.directory

    @cached_property
    def _places(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self.setup.properties.max_rolling_batch_size)

    async def _sequence(self, request: ValidRequest, index: int) -> AsyncGenerator[GenerationStep, None]:
        parameters = request.parameters
        tokens = TextTokens(
            self.tokenizer,
            parameters.stop_sequences or (),
            parameters.max_new_tokens,
            include_stop=parameters.includes_stop,
        )
        prefill = self._prefill(request) if parameters.wants_prefill and not index else None
        arrived = perf_counter()
        async with self._places, aclosing(self._texts(request)) as texts:
            queued: float | None = perf_counter() - arrived
            async for text in texts:
                new = tokens.push(text)
                if tokens.stopped or tokens.is_full:
                    break
                if new:
                    if parameters.num_top_tokens:
                        _add_top_tokens(new)
                    yield GenerationStep(new, None, index, prefill, queue_time=queued)
                    prefill = queued = None
            else:
                new = []
        if not tokens.stopped:
            new += tokens.finish()
        reason = self._end(tokens, new)
        if parameters.num_top_tokens:
            _add_top_tokens(new)
        yield GenerationStep(new, reason, index, prefill, queue_time=queued, stop_sequence=tokens.stop_sequence)

    def _texts(self, request: ValidRequest) -> AsyncGenerator[str, None]:
        return read_texts(
            lambda: self.generate(self._prompt(request), request.parameters),
            in_thread=not inspect.isasyncgenfunction(self.generate),
            owner=f"the {self.name} backend ({type(self).__name__})",
        )

    def _prompt(self, request: ValidRequest) -> str:
        """Return the prompt's text, truncated if required."""
        if request.parameters.max_prompt_tokens != len(request.prompt_ids):
            return request.prompt
        text = self.tokenizer.decode(request.prompt_ids, skip_special_tokens=False)
        return request.prompt if text.endswith(request.prompt) else text

    def _prefill(self, request: ValidRequest) -> list[Token]:
        first, *others = prompt_tokens(self.tokenizer, request.prompt_ids)
        if request.parameters.num_prompt_top_tokens:
            _add_top_tokens(others)
        return [first, *others]

    def _end(self, tokens: TextTokens, new: list[Token]) -> FinishReason:
        """Return the finish reason; if the text itself has ended, add a token for the end."""
        if tokens.stopped:
            return "stop_sequence"
        if tokens.is_full:
            return "length"
        if (end := self.tokenizer.eos_token_id) is not None:
            new.append(Token(end, "", CERTAIN, special=True, rank=1))
        return "eos_token"


def _add_top_tokens(tokens: Iterable[Token]) -> None:
    """Make each token the only likely one at its position."""
    for token in tokens:
        token.top_tokens = [Token(token.id, token.text, token.log_prob, token.special)]
