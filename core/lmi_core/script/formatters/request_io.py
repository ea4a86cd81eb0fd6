"""The requests and outputs of LMI's formatters: `djl_python.request_io`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Token:
    """A generated token or a prompt token."""

    id: int
    text: str
    log_prob: float | None = None
    special_token: bool | None = None
    error_msg: str | None = None
    request_id: int | str | None = field(init=False, default=None)

    def as_dict(self) -> dict[str, Any]:
        return self._as_dict("log_prob", "special_token")

    def as_tgi_dict(self) -> dict[str, Any]:
        return self._as_dict("logprob", "special")

    def _as_dict(self, log_prob: str, special: str) -> dict[str, Any]:
        found: dict[str, Any] = {"id": self.id, "text": self.text, log_prob: self.log_prob}
        if self.special_token:
            found[special] = self.special_token
        if self.error_msg:
            found["error_msg"] = self.error_msg
        return found


@dataclass
class Sequence:
    """One generated sequence and a cursor over its tokens."""

    tokens: list[Token] = field(default_factory=list)
    top_tokens: list[list[Token]] = field(default_factory=list)
    cumulative_log_prob: float = 0.0
    finish_reason: str | None = None
    stop_reason: str | None = None
    _last_token_index: int | None = None
    _numbers_tokens: bool = False
    _next_token: int = field(init=False, default=0)
    _next_top_tokens: int = field(init=False, default=0)

    def set_next_token(self, token: Token, is_last_token: bool = False) -> None:
        self.tokens.append(token)
        if is_last_token:
            self._last_token_index = len(self.tokens) - 1

    def set_next_top_tokens(self, top_tokens: list[Token]) -> None:
        self.top_tokens.append(top_tokens)

    @property
    def unread(self) -> int:
        """The number of tokens that the formatter has not read yet."""
        return len(self.tokens) - self._next_token

    def has_next_token(self) -> bool:
        return self.unread > 0

    def has_next_top_tokens(self) -> bool:
        return self._next_top_tokens < len(self.top_tokens)

    def get_next_token(self) -> tuple[Any, ...]:
        """Return `(token, is_first, is_last)`, or `(token, index, is_first, is_last)` for callers that unpack these."""
        has_next, index = self.has_next_token(), self._next_token
        token = self.tokens[index] if has_next else None
        self._next_token += has_next
        number = (index if has_next else 0,) if self._numbers_tokens else ()
        return token, *number, has_next and index == 0, has_next and index == self._last_token_index

    def get_next_top_tokens(self) -> list[Token] | None:
        if not self.has_next_top_tokens():
            return None
        self._next_top_tokens += 1
        return self.top_tokens[self._next_top_tokens - 1]

    def get_last_token(self) -> Token | None:
        return self.tokens[self._last_token_index] if self._last_token_index is not None else None


@dataclass
class RequestInput:
    """A request built by an input formatter and passed to the output formatter; subclasses are allowed."""

    request_id: int | str | None = None
    output_formatter: Callable[..., Any] | str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    server_parameters: dict[str, Any] = field(default_factory=dict)
    tgi_compat: bool = False


@dataclass
class TextInput(RequestInput):
    """A request for text."""

    input_text: Any = None
    input_ids: list[int] = field(default_factory=list)
    adapters: Any = None
    tokenizer: Any = None
    found_adapters: bool = False

    def prompt_tokens_length(self) -> int:
        return len(self.input_ids)


@dataclass
class RequestOutput:
    """The output of a request so far."""

    request_id: int | str | None
    input: RequestInput
    finished: bool = False


@dataclass
class TextGenerationOutput(RequestOutput):
    """The text that a request has generated so far."""

    sequences: dict[int, Sequence] = field(default_factory=dict)
    best_sequence_index: int = 0
    prompt_tokens_details: list[Token] = field(default_factory=list)
    other_sequences_indices: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sequences.setdefault(self.best_sequence_index, Sequence())

    def set_next_token(
        self, token: Token, sequence_index: int = 0, is_last_token: bool = False, finish_reason: str | None = None
    ) -> None:
        sequence = self.sequences.setdefault(sequence_index, Sequence())
        sequence.set_next_token(token, is_last_token)
        sequence.finish_reason = finish_reason or sequence.finish_reason

    def set_next_top_tokens(self, top_tokens: list[Token], sequence_index: int = 0) -> None:
        self.sequences[sequence_index].set_next_top_tokens(top_tokens)

    def set_best_sequence_index(self, sequence_index: int) -> None:
        self.best_sequence_index = sequence_index

    def set_finish_reason(self, finish_reason: str, sequence_index: int = 0) -> None:
        self.sequences[sequence_index].finish_reason = finish_reason

    def get_tokens_as_dict(self, sequence_index: int = 0) -> list[dict[str, Any]]:
        return self._as_dicts(self.sequences[sequence_index].tokens)

    def get_prompt_tokens_as_dict(self) -> list[dict[str, Any]]:
        return self._as_dicts(self.prompt_tokens_details)

    def get_prompt_tokes_as_dict(self) -> list[dict[str, Any]]:
        """Return the prompt tokens as dictionaries, under the misspelt name of LMI v0.28."""
        return self.get_prompt_tokens_as_dict()

    def get_top_tokens_as_dict(self, sequence_index: int = 0) -> list[list[dict[str, Any]]]:
        return [self._as_dicts(tokens) for tokens in self.sequences[sequence_index].top_tokens]

    def _as_dicts(self, tokens: list[Token]) -> list[dict[str, Any]]:
        return [token.as_tgi_dict() if self.input.tgi_compat else token.as_dict() for token in tokens]


@dataclass(frozen=True)
class CallContext:
    """The properties of a call that formatters may read besides the output."""

    request_id: str
    tokenizer: Any = None
    request_input: RequestInput | None = None
    tgi_compat: bool = False
    adapter: str | None = None
    time_limit: float = 120.0  # seconds allowed for one step
    model: str = ""
