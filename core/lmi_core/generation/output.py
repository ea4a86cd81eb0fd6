"""Generation steps that backends yield and formatters read.

They are built once per token, and therefore do not use pydantic.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import msgspec

from lmi_core.errors import LmiError
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.generation.request import ValidRequest

# Why a sequence ended; backends only use the first three.
FinishReason = Literal["length", "eos_token", "stop_sequence", "error", "abort"]


class Token(msgspec.Struct, array_like=True, gc=False):
    """A token and its text, which is "" if the token ends inside a character."""

    id: int
    text: str
    log_prob: float | None = None  # in the model's unmodified distribution; None for the first token of a prompt
    special: bool = False
    top_tokens: "list[Token] | None" = None  # the most likely tokens at its position, most likely first, if requested
    rank: int | None = None  # the token's rank at its position, from 1; for generated tokens, only if requested


text_of = attrgetter("text")  # of a token

NO_TOKEN = Token(-1, "", None, True)  # for the final chunk of an aborted request, which has no token


class GenerationStep(msgspec.Struct, array_like=True, gc=False):
    """The tokens, with final texts, that one engine step added to a sequence."""

    tokens: list[Token]
    finish_reason: FinishReason | None = None
    sequence_index: int = 0
    prefill: list[Token] | None = None  # the prompt's tokens, in the first step, if `decoder_input_details` is set
    # If requested, the model's unmodified logits as little-endian float32 bytes: in `prompt_logits`, [prompt tokens,
    # vocabulary], only in the first step; in `generation_logits`, [tokens, vocabulary], a row for each of `tokens`.
    prompt_logits: bytes | None = None
    generation_logits: bytes | None = None
    # Data for another engine that continues this one's work, in the last step: members of the response with vLLM's
    # names, `kv_transfer_params` and `ec_transfer_params`.
    transfer: dict[str, Any] | None = None
    # The number of prompt tokens found in the engine's prefix cache; in the first step of sequence 0. None if the
    # engine does not report it.
    cached_tokens: int | None = None
    prompt_index: int = 0  # the prompt's index in its call; backends, which see one prompt, leave it 0
    stop_sequence: str | None = None  # the requested stop sequence that ended it
    # Seconds that the request waited in the engine before it ran; reported like `cached_tokens`.
    queue_time: float | None = None


class Given(msgspec.Struct, array_like=True):
    """The output of one sequence so far, from which another engine continues."""

    token_ids: list[int] = []
    begun: bool = False  # its first step, which describes the prompt, has been delivered
    finished: bool = False


class PartialOutput:
    """The steps of a request, of which only the tokens are kept; they are examined when its engine has died."""

    def __init__(self, num_sequences: int) -> None:
        self._tokens: list[list[list[Token]]] = [[] for _ in range(num_sequences)]
        self._finished = [False] * num_sequences
        self._count = 0

    def add(self, step: GenerationStep) -> int:
        """Add a step, and return the total number of tokens."""
        self._tokens[step.sequence_index].append(step.tokens)
        if step.finish_reason is not None:
            self._finished[step.sequence_index] = True
        self._count += len(step.tokens)
        return self._count

    @property
    def unfinished(self) -> int:
        """The number of unfinished sequences."""
        return self._finished.count(False)

    @property
    def given(self) -> list[Given]:
        """The output of each sequence; empty if none has started."""
        if not any(self._tokens):
            return []
        return [
            Given([token.id for tokens in steps for token in tokens], bool(steps), finished)
            for steps, finished in zip(self._tokens, self._finished, strict=True)
        ]


class Usage(NamedTuple):
    """The numbers of prompt tokens and generated tokens."""

    prompt_tokens: int
    generated_tokens: int

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.generated_tokens


class GeneratedSequence:
    """The tokens generated so far for one sequence."""

    __slots__ = ("_log_prob", "_read", "_text", "finish_reason", "stop_sequence", "tokens")

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self.finish_reason: FinishReason | None = None
        self.stop_sequence: str | None = None  # the stop sequence that ended it; otherwise None
        self._read = 0  # the number of tokens included in the two attributes below
        self._text = ""
        self._log_prob = 0.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(text={self.text!r}, finish_reason={self.finish_reason!r}, tokens={self.tokens})"

    @property
    def text(self) -> str:
        self._read_on()
        return self._text

    @property
    def cumulative_log_prob(self) -> float:
        self._read_on()
        return self._log_prob

    def extend(self, step: GenerationStep) -> None:
        self.tokens += step.tokens
        self.finish_reason = step.finish_reason
        self.stop_sequence = step.stop_sequence

    def _read_on(self) -> None:
        """Add the unread tokens. This happens on demand, because most formatters need the text only at the end."""
        if self._read < len(self.tokens):
            new = self.tokens[self._read :]
            self._read = len(self.tokens)
            self._text += "".join([token.text for token in new])
            self._log_prob += sum([token.log_prob or 0.0 for token in new])


class GenerationOutput:
    """Everything that one call has generated so far, as a formatter reads it.

    `sequences` contains the sequences of all prompts in order; `step` is the latest step, and `sequence` the sequence
    that it extended.
    """

    __slots__ = (
        "_cached",
        "_first",
        "_unfinished",
        "error",
        "finished",
        "prefill",
        "prompt_index",
        "requests",
        "sequence",
        "sequences",
        "step",
        "transfer",
    )

    def __init__(self, requests: Sequence[ValidRequest]) -> None:
        self.requests = requests
        self.error: LmiError | None = None  # set when the call failed; `step` is empty then
        self.sequences: list[GeneratedSequence] = []
        self.prefill: list[list[Token] | None] = [None] * len(requests)
        self._cached: dict[int, int] = {}  # by prompt
        self._first: list[int] = []  # for each prompt, the index of its first sequence
        for request in requests:
            self._first.append(len(self.sequences))
            self.sequences += [GeneratedSequence() for _ in range(request.parameters.num_sequences)]
        self._unfinished = len(self.sequences)
        self.finished: bool = False  # whether every sequence of the call has ended
        self.prompt_index = 0
        self.sequence = self.sequences[0]
        self.step = GenerationStep([])
        self.transfer: dict[str, Any] = {}  # the `transfer` of the first sequence that has any

    @property
    def request(self) -> ValidRequest:
        """The request that the most recent step belongs to."""
        return self.requests[self.prompt_index]

    @property
    def parameters(self) -> GenerationParameters:
        return self.requests[self.prompt_index].parameters

    def full_text(self, sequence: GeneratedSequence) -> str:
        """Return the generated text, with the prompt before it if `return_full_text` is set."""
        request = self.request
        return request.prompt + sequence.text if request.parameters.return_full_text else sequence.text

    @property
    def delta(self) -> str:
        """The text that the latest step added."""
        return "".join(map(text_of, self.step.tokens))

    @property
    def text(self) -> str:
        """The whole text so far of the sequence that the latest step extended."""
        return self.sequence.text

    @property
    def is_first(self) -> bool:
        """Whether the latest step added its sequence's first token."""
        return 0 < len(self.sequence.tokens) == len(self.step.tokens)

    @property
    def is_last(self) -> bool:
        """Whether the latest step ended its sequence."""
        return self.step.finish_reason is not None

    @property
    def finish_reason(self) -> FinishReason | None:
        return self.sequence.finish_reason

    @property
    def usage(self) -> Usage:
        """The token counts so far, over all prompts and sequences of the call."""
        prompt_tokens = sum(len(request.prompt_ids) for request in self.requests)
        return Usage(prompt_tokens, sum(len(sequence.tokens) for sequence in self.sequences))

    @property
    def cached_tokens(self) -> int | None:
        """The number of prompt tokens from the engine's prefix cache, over all prompts of the call.

        None until a prompt's first step, and for engines that do not report it.
        """
        return sum(self._cached.values()) if self._cached else None

    @property
    def best_sequence(self) -> GeneratedSequence:
        if self.parameters.best_first:
            return self.sequences_of(self.prompt_index)[0]
        return max(self.sequences, key=lambda sequence: sequence.cumulative_log_prob)

    def sequences_of(self, prompt_index: int) -> list[GeneratedSequence]:
        """Return a prompt's sequences in the order of their indices."""
        first = self._first[prompt_index]
        return self.sequences[first : first + self.requests[prompt_index].parameters.num_sequences]

    def best_sequences(self, count: int, prompt_index: int = 0) -> list[GeneratedSequence]:
        """Return a prompt's `count` most likely sequences, best first; in index order if no more were generated."""
        sequences = self.sequences_of(prompt_index)
        if count >= len(sequences) or self.requests[prompt_index].parameters.best_first:
            return sequences[:count]
        return sorted(sequences, key=lambda sequence: -sequence.cumulative_log_prob)[:count]

    def add(self, step: GenerationStep) -> None:
        self.step = step
        self.prompt_index = prompt_index = step.prompt_index
        self.sequence = self.sequences[self._first[prompt_index] + step.sequence_index]
        self.sequence.extend(step)
        if step.prefill is not None:
            self.prefill[prompt_index] = step.prefill
        if step.transfer is not None:
            self.transfer = self.transfer or step.transfer
        if step.cached_tokens is not None:
            self._cached[prompt_index] = step.cached_tokens
        if step.finish_reason is not None:
            self._unfinished -= 1
            self.finished = self._unfinished == 0
