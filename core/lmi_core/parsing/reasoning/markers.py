"""Reasoning between markers before the content, the format of nearly all models."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass

from lmi_core.parsing.reasoning.parser import (
    AnswerContext,
    ReasoningFormat,
    ReasoningMarkers,
    ReasoningParser,
)


class StreamStrip:
    """A streaming `strip` of leading and, if `end`, trailing whitespace."""

    def __init__(self, *, start: bool, end: bool) -> None:
        self.begun = not start  # whether there was more than leading whitespace
        self._end = end
        self._blanks = ""  # held back: part of the text only if more follows

    def push(self, text: str) -> str:
        if not self.begun:
            text = text.lstrip()
            self.begun = bool(text)
        if not self._end:
            return text
        text = self._blanks + text
        kept = text.rstrip()
        self._blanks = text[len(kept) :]
        return kept


@dataclass(frozen=True, slots=True)
class Markers(ReasoningFormat):
    """The format with markers around the reasoning; each marker has alternatives, and adjacent whitespace is
    dropped.
    """

    starts: tuple[str, ...] = ("<think>",)
    ends: tuple[str, ...] = ("</think>",)
    opened: bool = False  # whether answers start inside the reasoning if the prompt has no marker
    interrupts: tuple[str, ...] = ()  # start a tool call, which also ends the reasoning and is content
    wrapper: tuple[str, str] | None = None  # markers that some models put around the content after the reasoning

    def reads(self, special_token: str) -> bool:
        markers = (*self.starts, *self.ends, *self.interrupts, *(self.wrapper or ()))
        return any(special_token in marker for marker in markers)

    def new_parser(self, context: AnswerContext) -> ReasoningParser:
        return MarkedReasoning(self, self._inside(context), self.interrupts if context.tools else ())

    def before_guide(self, context: AnswerContext) -> list[str] | None:
        if self._inside(context):
            return ["", *self.ends]
        closed = context.prompt.rstrip().endswith(self.ends)
        return None if closed or context.disabled or context.continued else [self.starts[0], *self.ends]

    def markers_of(self, context: AnswerContext) -> ReasoningMarkers | None:
        interrupts = self.interrupts if context.tools else ()
        return ReasoningMarkers(self.starts, self.ends, interrupts, self._inside(context))

    def close(self, prompt: str) -> str:
        return f"{prompt.rstrip()}\n{self.ends[0]}\n\n" if prompt.rstrip().endswith(self.starts) else prompt

    def _inside(self, context: AnswerContext) -> bool:
        """Return whether the prompt ends inside the reasoning."""
        started = max(context.continued.rfind(marker) for marker in self.starts)
        ended = max(context.continued.rfind(marker) for marker in self.ends)
        if started != ended:
            return started > ended
        prompt = context.prompt.rstrip()
        if prompt.endswith(self.starts + self.ends):
            return prompt.endswith(self.starts)
        return self.opened and not context.disabled and not context.continued


class MarkedReasoning(ReasoningParser):
    """A parser of one sequence; reasoning that does not come first is content."""

    def __init__(self, markers: Markers, inside: bool, interrupts: tuple[str, ...]) -> None:
        super().__init__()
        self.inside = inside
        self._markers = markers
        self._interrupts = interrupts

    def read(self) -> Iterator[None]:
        markers = self._markers
        # The model may repeat the marker that the prompt ends with
        first = markers.starts if self.inside else markers.starts + markers.ends
        while (found := self.read_marker(first)) is None:
            self.undecided = not self.inside and bool(self.held.strip())
            yield
        self.undecided = False
        has_ended = found in markers.ends
        if self.inside or found in markers.starts:
            yield from self._read_reasoning()
            has_ended = True
        strip = StreamStrip(start=has_ended, end=False)
        if has_ended and markers.wrapper is not None:
            strip = yield from self._read_wrapped(*markers.wrapper)
        while True:
            self.content += strip.push(self.held)
            self.held = ""
            yield

    def _read_reasoning(self) -> Iterator[None]:
        self.inside = True
        ends = self._markers.ends + self._interrupts
        strip, end = StreamStrip(start=True, end=True), ""
        while not end:
            text, end = self.read_until(ends)
            self.reasoning += strip.push(text)
            if not end:
                yield
        self.inside = False
        if end in self._interrupts:
            self.held = end + self.held

    def _read_wrapped(self, opening: str, closing: str) -> Generator[None, None, StreamStrip]:
        """Read content between two markers, if it has them; return the reader of whitespace for what follows."""
        while (found := self.read_marker((opening,))) is None:
            yield
        strip, end = StreamStrip(start=True, end=bool(found)), ""
        if found:
            while not end:
                text, end = self.read_until((closing,))
                self.content += strip.push(text)
                if not end:
                    yield
        return strip
