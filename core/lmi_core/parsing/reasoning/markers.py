"""Reasoning between markers before the content, the format of nearly all models."""

from dataclasses import dataclass

from lmi_core.parsing.reasoning.parser import (
    AnswerContext,
    PhasedReasoning,
    ReasoningFormat,
    ReasoningMarkers,
    ReasoningParser,
    SplitText,
)
from lmi_core.parsing.search import find_first, starts_with


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


class MarkedReasoning(PhasedReasoning):
    """A parser of one sequence; reasoning that does not come first is content."""

    def __init__(self, markers: Markers, inside: bool, interrupts: tuple[str, ...]) -> None:
        super().__init__(self._read_reasoning if inside else self._find_start)
        self._markers = markers
        self._ends = markers.ends + interrupts
        self._repeats = inside  # whether the model may repeat the marker that the prompt ends with
        self._reasoning = StreamStrip(start=True, end=True)
        self._content = StreamStrip(start=False, end=False)

    @property
    def inside(self) -> bool:
        return self._phase == self._read_reasoning

    @property
    def undecided(self) -> bool:
        return self._phase == self._find_start and bool(self._held.strip())

    def _find_start(self, final: bool) -> SplitText | None:
        """Read up to the start marker; without one, all text is content."""
        text = self._held.lstrip()
        found = starts_with(text, self._markers.starts + self._markers.ends, final=final)
        if found is None:
            return None
        if not found:
            self._phase = self._read_content
        elif found in self._markers.starts:
            self._held = text[len(found) :]
            self._phase = self._read_reasoning
        else:
            self._end(text[len(found) :])
        return SplitText()

    def _read_reasoning(self, final: bool) -> SplitText | None:
        if self._repeats:
            return self._skip_repeated_start(final)
        found = find_first(self._held, self._ends, final=final)
        text, rest = self._held[: found.place], self._held[found.place :]
        self._held = rest
        if found.marker:
            self._end(rest.removeprefix(found.marker) if found.marker in self._markers.ends else rest)
        elif not text:
            return None
        return SplitText(reasoning=self._reasoning.push(text))

    def _skip_repeated_start(self, final: bool) -> SplitText | None:
        text = self._held.lstrip()
        found = starts_with(text, self._markers.starts, final=final)
        if found is None:
            return None
        self._repeats = False
        self._held = text[len(found) :]
        return SplitText()

    def _end(self, rest: str) -> None:
        """Switch from the reasoning to the content, which starts with `rest`."""
        self._held = rest
        self._content = StreamStrip(start=True, end=False)
        self._phase = self._skip_wrapper if self._markers.wrapper else self._read_content

    def _skip_wrapper(self, final: bool) -> SplitText | None:
        """Drop a wrapper's marker between the reasoning and the content."""
        assert self._markers.wrapper is not None
        opening, _ = self._markers.wrapper
        text = self._held.lstrip()
        found = starts_with(text, (opening,), final=final)
        if found is None:
            return None
        self._held = text[len(found) :]
        self._phase = self._read_wrapped if found else self._read_content
        if found:
            self._content = StreamStrip(start=True, end=True)
        return SplitText()

    def _read_wrapped(self, final: bool) -> SplitText | None:
        assert self._markers.wrapper is not None
        _, closing = self._markers.wrapper
        found = find_first(self._held, (closing,), final=final)
        text, self._held = self._held[: found.place], self._held[found.place + len(found.marker) :]
        if found.marker:
            self._phase = self._read_content
        elif not text:
            return None
        return SplitText(content=self._content.push(text))

    def _read_content(self, final: bool) -> SplitText | None:
        text, self._held = self._held, ""
        return SplitText(content=self._content.push(text))
