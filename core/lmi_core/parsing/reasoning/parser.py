"""The interface of reasoning formats."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lmi_core.parsing.search import find_first, starts_with


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

    inside = False  # whether the last pushed text belongs to the reasoning or to one of its markers
    undecided = False  # whether the last pushed text may turn out to be the start of the reasoning

    def __init__(self) -> None:
        self.held = ""  # text not read yet
        self.final = False  # the text is complete
        self.reasoning = self.content = ""  # text to return
        self._reading = self.read()

    @abstractmethod
    def read(self) -> Iterator[None]:
        """Read all text, and yield to wait for more, even at its end."""

    def push(self, text: str) -> SplitText:
        """Process generated text, and return the text that is final now."""
        self.held += text
        next(self._reading)
        part = SplitText(self.reasoning, self.content)
        self.reasoning = self.content = ""
        return part

    def finish(self) -> SplitText:
        """Return the remaining text, at the end of the generated text."""
        self.final = True
        return self.push("")

    def read_until(self, markers: Sequence[str]) -> tuple[str, str]:
        """Read up to the end of the first marker, and return the text before it, and the marker.

        If there is none, read only the text that cannot be the start of one.
        """
        place, marker = find_first(self.held, markers, final=self.final)
        text, self.held = self.held[:place], self.held[place + len(marker) :]
        return text, marker

    def read_marker(self, markers: Sequence[str]) -> str | None:
        """Read whitespace and a marker, and return the marker; read nothing, and return "", if it is not there.

        None means that more text could decide.
        """
        text = self.held.lstrip()
        marker = starts_with(text, markers, final=self.final)
        if marker:
            self.held = text[len(marker) :]
        return marker


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
