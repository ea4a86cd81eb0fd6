"""The interface of output formatters, which write answers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from lmi_core.decorators import output_formatter
from lmi_core.errors import InvalidParameter, LmiError
from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.generation.request import ValidRequest
from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.parsing.reasoning.reader import Reasoning
from lmi_core.parsing.tool_calls.parser import ToolCallParser

__all__ = ["GenerationOutput", "OutputFormatter", "output_formatter"]


class AnswerSchema(StrEnum):
    """A schema of answers in which a formatter may have a variant."""

    ASYNC = "option.async_mode"
    CHAT = "chat"
    DYNAMIC_BATCH = "dynamic batch"
    TGI_COMPAT = "option.tgi_compat"


@dataclass(frozen=True, slots=True)
class Variant:
    """The formatter, by name, that a variant replaces if answers have the schema."""

    of: str
    schema: AnswerSchema


@dataclass(frozen=True, slots=True)
class FormatterNames:
    """The names of the formatters of LMI answers, whole and streamed."""

    whole: str
    stream: str
    everywhere: bool = False  # use them even if a dialect has its own form


class AnswerWriter(ABC):
    """A writer of one call's answer; one instance per call. Its variants write texts, tensors and vectors."""

    # Whether `error` also writes the response, with the error's status, if generation fails before the first bytes.
    errors_are_events: ClassVar[bool] = False

    # An instance may still set this and `headers` in the call that returns its first bytes.
    content_type: str
    headers: Mapping[str, str] = MappingProxyType({})

    # Whether type and headers are known before the first bytes; if not, none are sent to keep a waiting request alive.
    is_settled: bool = True

    @abstractmethod
    def error(self, error: LmiError) -> bytes | list[bytes]:
        """Return the end of a failed answer, part of which may already have been sent."""


class OutputFormatter(AnswerWriter):
    """A writer of one call's output as it is generated; one instance per call. Returned data is final.

    The result of `format` at each generation step is sent to the client immediately; each event of a list is sent
    separately. A formatter of whole (not streamed) answers returns b"" until `output.finished`.
    """

    name: ClassVar[str]
    variant: ClassVar[Variant | None] = None  # the formatter of which it is a variant, if any; not inherited
    one_sequence: ClassVar[bool] = False  # whether its format has no place for several sequences of a prompt

    # Where a model.py's function finds the text in the JSON objects; without them, the function sees no text.
    text_path: tuple[str, ...] = ()  # the path of members to the text or to a list of texts
    full_text: ClassVar[str | None] = None  # the member of a stream's last object that repeats the whole text
    repeats_text: ClassVar[bool] = False  # whether a stream also repeats the text where no function can change it

    # The formatter whose output vLLM's response functions change instead; None means this one.
    engine_form: "OutputFormatter | None" = None

    is_changed = False  # whether the model's own code changes the output of this instance before it is sent

    @abstractmethod
    def format(self, output: GenerationOutput) -> bytes | list[bytes]:
        """Return the data to send after the latest generation step, `output.step`."""

    def reads_log_probs(self, parameters: GenerationParameters) -> bool:
        """Return whether the formatter reads generated tokens' log probs, which may otherwise be None."""
        return True

    def reads_ranks(self, parameters: GenerationParameters) -> bool:
        """Return whether the formatter reads generated tokens' ranks, which may otherwise be None."""
        return False


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The settings that the handler of a chat passes to the formatter of its answer."""

    response_id: str
    model: str
    tokenizer: Tokenizer
    log_probs: bool = False
    # Makes a parser for one sequence; None if all text is content
    tool_calls: Callable[[], ToolCallParser] | None = None
    named_tool: bool = False  # whether the client requires one function by name
    older_calls: bool = False  # write a call as `function_call`; there is at most one
    echo: str = ""  # text to write before the generated content
    include_usage: bool = False  # report the usage at the end of a stream
    continuous_usage: bool = False  # report the usage in each chunk, too
    reasoning: Reasoning | None = None  # None if reasoning is part of the content
    include_reasoning: bool = True  # whether the answer includes the reasoning
    token_ids_as_text: bool = False  # write `token_id:N` for a token in log probabilities
    # Fields that only OpenAI's format has:
    fingerprint: str | None = None  # the fingerprint of the model's configuration
    token_ids: bool = False  # include the tokens' ids in each choice
    prompt_token_ids: bool = False
    prompt_text: bool = False
    prompt_log_probs: int | None = None  # the number of top log probs per prompt token; None means no log probs


class ChatFormatter(OutputFormatter):
    """A writer of the answer to one chat."""

    def __init__(self, answer: ChatAnswer) -> None:
        self.chat = answer


def check_sequences(formatter: OutputFormatter, requests: Iterable[ValidRequest]) -> None:
    """Raise InvalidParameter if a request requires more sequences than the formatter can write."""
    for request in requests:
        count = request.parameters.num_sequences
        if formatter.one_sequence and count > 1:
            raise InvalidParameter(
                f"`n`, `best_of` and `num_beams` must be 1 in a stream ({formatter.name}). Given: {count}"
            )


def drop_unused_log_probs(formatter: OutputFormatter, requests: Iterable[ValidRequest]) -> list[ValidRequest]:
    """Return the requests with unused log probs turned off, and needed ranks turned on.

    Log probs stay on if they rank several sequences.
    """
    return [
        replace(
            request,
            ranks=formatter.reads_ranks(request.parameters),
            log_probs=request.parameters.num_sequences > 1 or formatter.reads_log_probs(request.parameters),
        )
        for request in requests
    ]


def join_events(data: bytes | list[bytes]) -> bytes:
    """Join a formatter's list of events into one body."""
    return data if isinstance(data, bytes) else b"".join(data)
