"""The seam to how a model marks its reasoning in what it writes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple


class SplitText(NamedTuple):
    """Text of the reasoning, and text of the content that comes after it."""

    reasoning: str = ""
    content: str = ""


class ReasoningMarkers(NamedTuple):
    """The markers of one answer that a limit on its reasoning goes by."""

    starts: tuple[str, ...]
    ends: tuple[str, ...]  # any of which may be written to end the reasoning
    others: tuple[str, ...]  # end it too, as content
    inside: bool  # whether the prompt ends within the reasoning


@dataclass(frozen=True, slots=True)
class AnswerContext:
    """What is known of an answer before it is written."""

    prompt: str
    continued: str = ""  # the text of the answer that the prompt ends within; "" for a new answer
    disabled: bool = False  # whether the chat template was told to have the model answer without reasoning
    tools: bool = False  # whether the model may call any


class ReasoningParser(ABC):
    """Separates one sequence's reasoning from its content while they are written; what it returned is final."""

    @property
    @abstractmethod
    def inside(self) -> bool:
        """Whether what was pushed last belongs to the reasoning, or to a marker of it."""

    @property
    @abstractmethod
    def undecided(self) -> bool:
        """Whether what was pushed last may turn out to be the start of the reasoning."""

    @abstractmethod
    def push(self, text: str) -> SplitText:
        """Return what is known now that the model has written this text too."""

    @abstractmethod
    def finish(self) -> SplitText:
        """Return what is left now that the model has ended."""


class ReasoningFormat(ABC):
    """One way of marking reasoning, which several models may share."""

    @abstractmethod
    def reads(self, special_token: str) -> bool:
        """Whether this special token, which has no text in an answer, belongs to a marker."""

    @abstractmethod
    def new_parser(self, context: AnswerContext) -> ReasoningParser:
        """Return the parser of one sequence."""

    def before_guide(self, context: AnswerContext) -> list[str] | None:
        """Return `guided_reasoning` for an answer that a guide is for; None: it cannot have any reasoning."""
        return None

    def markers_of(self, context: AnswerContext) -> ReasoningMarkers | None:
        """Return what a limit on the reasoning goes by; None: no text alone ends the reasoning of this format."""
        return None

    def close(self, prompt: str) -> str:
        """Return the prompt of an answer without reasoning: what the template opened is closed."""
        return prompt
