"""A backend without a model, which yields scripted answers, for tests and for authors of plugins."""

import asyncio
import struct
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import Field, NonNegativeFloat

from lmi_core.backend import Backend, BackendSetup
from lmi_core.configuration.location import RemoteModel
from lmi_core.configuration.properties import ModelProperties
from lmi_core.embedding_backend import EmbeddingBackend, EmbeddingModel, Vector
from lmi_core.errors import GenerationFailed
from lmi_core.generation.embedding_request import ValidEmbedding
from lmi_core.generation.output import FinishReason, GenerationStep, Token
from lmi_core.generation.parameters import ALL_TOKENS, ExtendedParameters
from lmi_core.generation.request import ValidRequest
from lmi_core.texts.token_stream import TokenStream
from lmi_core.texts.word_tokenizer import CHAT_TEMPLATE, WordTokenizer

__all__ = ["CHAT_TEMPLATE", "Script", "ScriptedBackend", "ScriptedProperties", "WordTokenizer"]

MAX_LENGTH = 2048


class ScriptedProperties(ModelProperties):
    """The options of the scripted backend's answers."""

    scripted_text: str = Field(
        "Deep Learning is a really cool field.", description="The answer to every prompt, with one token per word."
    )
    scripted_delay: NonNegativeFloat = Field(0, description="Time between two tokens, in seconds.")


@dataclass(slots=True)
class Script:
    """One answer. With `error`, it fails after the text; with `hold`, it waits there until it is closed."""

    text: str = ""
    error: str | None = None
    hold: bool = False
    tokens: Sequence[str] = ()  # the token texts, instead of the words of `text`
    prefilled: asyncio.Event | None = None  # if set, the first token waits for this event
    started: asyncio.Event = field(default_factory=asyncio.Event)  # set when the text has been yielded
    closed: asyncio.Event = field(default_factory=asyncio.Event)  # set when the request has ended or was aborted


class ScriptedBackend(Backend[ScriptedProperties], EmbeddingBackend):
    """A backend that answers with the enqueued scripts in turn, then with `option.scripted_text`.

    The requests that it received are in `history`. With `option.task=text-embedding`, it embeds instead, and the
    requests are in `embedded`. A vector is the number of tokens, the first and the last token id, and 0.1; a script's
    error or hold comes before the last vector. With `option.task=reranking`, the score of a pair is its number of
    tokens, divided by the context length unless the request asks for the raw score.
    """

    name = "scripted"
    properties_type = ScriptedProperties
    parameters_type = ExtendedParameters  # only length, stops, n and log probs have an effect

    @classmethod
    def downloads(cls, setup: BackendSetup[ScriptedProperties]) -> Mapping[str, RemoteModel]:
        """Return nothing, because the backend needs no model."""
        return {}

    def __init__(self, setup: BackendSetup[ScriptedProperties]) -> None:
        super().__init__(setup)
        self.tokenizer: WordTokenizer = WordTokenizer()
        self.max_length = MAX_LENGTH
        self.history: list[ValidRequest] = []
        self.embedded: list[ValidEmbedding] = []
        self._scripts: deque[Script] = deque()
        if setup.properties.asked_task == "embed":
            self.generates, self.embedding = False, EmbeddingModel(4, MAX_LENGTH, None)
        if setup.properties.asked_task == "score":
            self.generates, self.embedding = False, EmbeddingModel(1, MAX_LENGTH, scores=True)

    def enqueue(self, *scripts: Script) -> None:
        """Set the answers to the next requests, in order of arrival."""
        self._scripts.extend(scripts)

    async def start(self) -> None:
        """Return immediately, because there is nothing to load."""

    async def stop(self) -> None:
        """Return immediately, because there is nothing to free."""

    async def health(self) -> None:
        """Return without an error, because the backend cannot fail."""

    async def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        self.history.append(request)
        script = self._scripts.popleft() if self._scripts else Script(self.setup.properties.scripted_text)
        try:
            for sequence_index in range(request.parameters.num_sequences):
                async for step in self._answer(script, request, sequence_index):
                    yield step
        finally:
            script.closed.set()

    async def embed(self, requests: Sequence[ValidEmbedding]) -> AsyncGenerator[Vector, None]:
        self.embedded += requests
        script = self._scripts.popleft() if self._scripts else Script()
        try:
            for index, request in reversed(list(enumerate(requests))):
                if index == 0 and (script.error is not None or script.hold):
                    script.started.set()
                    if script.hold:
                        await asyncio.Event().wait()
                    raise GenerationFailed(str(script.error))
                await asyncio.sleep(0)
                vector = self._vector(request)
                yield index, struct.pack(f"<{len(vector)}f", *vector)
        finally:
            script.closed.set()

    def _vector(self, request: ValidEmbedding) -> list[float]:
        ids = request.prompt_ids
        if self.embedding is not None and self.embedding.scores:
            return [float(len(ids)) if request.normalize is False else len(ids) / MAX_LENGTH]
        return [len(ids), ids[0], ids[-1], 0.1][: request.dimensions]

    async def _answer(
        self, script: Script, request: ValidRequest, sequence_index: int
    ) -> AsyncGenerator[GenerationStep, None]:
        words = [self.tokenizer.id(text) for text in script.tokens] or self.tokenizer.encode(script.text)
        if script.prefilled is not None:
            await script.prefilled.wait()
        stream = TokenStream(self.tokenizer.detokenizer([]), request.parameters.stop_sequences or [], frozenset())
        most = request.parameters.max_new_tokens
        prefill = self._prefill(request) if request.parameters.wants_prefill else None
        for number, token_id in enumerate(words[:most], start=1):
            await asyncio.sleep(self.setup.properties.scripted_delay if number > 1 else 0)
            tokens = stream.push(token_id, -0.25 * (sequence_index + 1))
            last = number == min(most, len(words)) and script.error is None and not script.hold
            reason = _finish_reason(stream.stopped, last, len(words) > most)
            if reason is not None:
                tokens += stream.finish()
            self._add_likeliest(tokens, request.parameters.num_top_tokens)
            yield GenerationStep(tokens, reason, sequence_index, prefill, stop_sequence=stream.stop_sequence)
            if reason is not None:
                return
            prefill = None
        script.started.set()
        if script.hold:
            await asyncio.Event().wait()
        raise GenerationFailed(script.error or "the script is empty")

    def _prefill(self, request: ValidRequest) -> list[Token]:
        first, *others = [
            Token(token_id, self.tokenizer.word(token_id), -0.5, rank=1) for token_id in request.prompt_ids
        ]
        first.log_prob = first.rank = None
        self._add_likeliest(others, request.parameters.num_prompt_top_tokens)
        return [first, *others]

    def _add_likeliest(self, tokens: list[Token], count: int) -> None:
        """Set the top tokens of each token: itself, then those with the next ids."""
        if not count:
            return
        size = self.tokenizer.vocabulary_size
        for token in tokens:
            ids = [
                (token.id + distance) % size for distance in range(size if count == ALL_TOKENS else min(count, size))
            ]
            token.top_tokens = [
                Token(token_id, self.tokenizer.word(token_id), (token.log_prob or 0) - distance)
                for distance, token_id in enumerate(ids)
            ]


def _finish_reason(stopped: bool, last: bool, cut: bool) -> FinishReason | None:
    if stopped:
        return "stop_sequence"
    if last:
        return "length" if cut else "eos_token"
    return None
