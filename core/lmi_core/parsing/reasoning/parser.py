"""The interface of reasoning formats."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class SplitText(NamedTuple):
    """A text split into reasoning and the content after it."""

    reasoning: str = ""
    content: str = ""


class ReasoningMarkers(NamedTuple):
    """The markers of one answer's reasoning, for a limit on its tokens."""

    starts: tuple[str, ...]
    ends: tuple[str, ...]  # any one of them ends the reasoning
    others: tuple[str, ...]  # also end the reasoning, and are content
    inside: bool  # whether the prompt ends inside the reasoning


@dataclass(frozen=True, slots=True)
class AnswerContext:
    """The facts about an answer before it is generated."""

    prompt: str
    continued: str = ""  # the start of the answer if it is part of the prompt; "" for a new answer
    disabled: bool = False  # whether reasoning was turned off in the chat template
    tools: bool = False  # whether the model may call tools


class ReasoningParser(ABC):
    """A streaming splitter of one sequence into reasoning and content; returned text is final."""

    @property
    @abstractmethod
    def inside(self) -> bool:
        """Whether the last pushed text belongs to the reasoning or to one of its markers."""

    @property
    @abstractmethod
    def undecided(self) -> bool:
        """Whether the last pushed text may turn out to be the start of the reasoning."""

    @abstractmethod
    def push(self, text: str) -> SplitText:
        """Process generated text, and return the text that is final now."""

    @abstractmethod
    def finish(self) -> SplitText:
        """Return the remaining text, at the end of the generated text."""


class ReasoningFormat(ABC):
    """A format of reasoning, which several models may share."""

    @abstractmethod
    def reads(self, special_token: str) -> bool:
        """Return whether the special token belongs to a marker; special tokens have no text in answers."""

    def token_text(self, text: str) -> str:
        """Return the text that the parser gets for a token with this text."""
        return text

    @abstractmethod
    def new_parser(self, context: AnswerContext) -> ReasoningParser:
        """Create the parser of one sequence."""

    def before_guide(self, context: AnswerContext) -> list[str] | None:
        """Return `guided_reasoning` for an answer with structured output; None if it cannot have reasoning."""
        return None

    def markers_of(self, context: AnswerContext) -> ReasoningMarkers | None:
        """Return the markers for a limit on the reasoning; None if no fixed text ends the reasoning."""
        return None

    def close(self, prompt: str) -> str:
        """Return the prompt with the template's open reasoning closed."""
        return prompt


Phase = Callable[[bool], SplitText | None]  # receives whether the text is complete; returns None to wait for more


class PhasedReasoning(ReasoningParser):
    """A parser in phases. Each phase consumes held text, and may set the next phase."""

    def __init__(self, first: Phase) -> None:
        self._held = ""  # text not yet returned
        self._phase = first

    def push(self, text: str) -> SplitText:
        self._held += text
        return self._advance(final=False)

    def finish(self) -> SplitText:
        return self._advance(final=True)

    def _advance(self, final: bool) -> SplitText:
        reasoning, content = "", ""
        while self._held and (part := self._phase(final)) is not None:
            reasoning += part.reasoning
            content += part.content
        return SplitText(reasoning, content)
