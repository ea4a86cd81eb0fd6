"""The harmony format of gpt-oss: messages in channels, one of which contains the reasoning."""

import re

from lmi_core.parsing.reasoning.parser import (
    AnswerContext,
    PhasedReasoning,
    ReasoningFormat,
    ReasoningParser,
    SplitText,
)
from lmi_core.parsing.search import find_first

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
MARKERS = (START, CHANNEL, MESSAGE, CONSTRAIN, *ENDS)
CHANNEL_NAME = re.compile(r"<\|channel\|>\s*(\w+)")


FINAL_HEADER = f"{CHANNEL}final{MESSAGE}"
FUNCTION = re.compile(r"\bto=functions\.")
HEADER_STARTS = ("<|", " to=")
BETWEEN_MESSAGES = "\n"  # joins messages of one kind, reasoning or content


class Harmony(ReasoningFormat):
    """The format with the reasoning in the channel `analysis`; function calls remain part of the content."""

    def reads(self, special_token: str) -> bool:
        return special_token in MARKERS

    def new_parser(self, context: AnswerContext) -> ReasoningParser:
        parser = HarmonyReasoning()
        begun = context.prompt[max(context.prompt.rfind(START), 0) :]
        if CHANNEL_NAME.search(begun):  # the prompt ends inside a message
            parser.continue_from(begun)
        return parser

    def close(self, prompt: str) -> str:
        return prompt if prompt.endswith(MESSAGE) else prompt + FINAL_HEADER


class HarmonyReasoning(PhasedReasoning):
    """A parser of message headers and bodies; text outside messages is content."""

    def __init__(self) -> None:
        super().__init__(self._begin)
        self._reasons = False
        self._calls = False
        self._has_reasoning = False
        self._has_content = False

    @property
    def inside(self) -> bool:
        return self._phase == self._body and self._reasons

    @property
    def undecided(self) -> bool:
        return self._phase in (self._begin, self._header) and bool(self._held)

    def continue_from(self, message: str) -> None:
        """Continue from a prompt that ends inside a message; return none of the prompt's text."""
        self.push(message)
        self._has_reasoning = self._has_content = False

    def _begin(self, final: bool) -> SplitText | None:
        """Determine whether the text starts with a message; otherwise all of it is content."""
        if not final and any(start.startswith(self._held) and start != self._held for start in HEADER_STARTS):
            return None
        self._phase = self._header if self._held.startswith(HEADER_STARTS) else self._unmarked
        return SplitText()

    def _header(self, final: bool) -> SplitText | None:
        """Read a header; drop it if it never ends."""
        head, found, body = self._held.partition(MESSAGE)
        if not found:
            self._held = "" if final else self._held
            return None
        self._held = body
        self._phase = self._body
        channel = CHANNEL_NAME.search(head)
        self._calls = FUNCTION.search(head) is not None
        self._reasons = not self._calls and channel is not None and channel[1] == "analysis"
        has_text = self._has_reasoning if self._reasons else self._has_content
        return self._split(head + MESSAGE if self._calls else BETWEEN_MESSAGES if has_text else "")

    def _body(self, final: bool) -> SplitText | None:
        found = find_first(self._held, (*ENDS, START), final=final)
        text, rest = self._held[: found.place], self._held[found.place :]
        self._held = rest
        if found.marker:
            self._phase = self._header
            if found.marker != START:
                self._held = rest.removeprefix(found.marker)
                text += found.marker if self._calls else ""
        elif not text:
            return None
        return self._split(text)

    def _split(self, text: str) -> SplitText:
        self._has_reasoning |= self._reasons and bool(text)
        self._has_content |= not self._reasons and bool(text)
        return SplitText(reasoning=text) if self._reasons else SplitText(content=text)

    def _unmarked(self, final: bool) -> SplitText | None:
        text, self._held = self._held, ""
        return SplitText(content=text)
