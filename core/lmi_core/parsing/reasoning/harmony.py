"""The harmony format of gpt-oss: messages in channels, one of which contains the reasoning.

Only tokens are markers. The same text in several tokens, which a model may quote, is part of a message.
"""

import re

from lmi_core.parsing.reasoning.parser import (
    AnswerContext,
    PhasedReasoning,
    ReasoningFormat,
    ReasoningParser,
    SplitText,
)
from lmi_core.parsing.search import MARK, find_first, unmarked

TEXTS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>")
TEXT = re.compile("|".join(map(re.escape, TEXTS)))
MARKERS = tuple(MARK + text for text in TEXTS)
START, CHANNEL, MESSAGE, CONSTRAIN, *ENDS = MARKERS
CHANNEL_NAME = re.compile(rf"{re.escape(CHANNEL)}\s*(\w+)")
RECIPIENT = re.compile(rf"\bto=([^\s<{MARK}]+)")
NO_FUNCTIONS = ("assistant", "browser", "container", "python")  # other recipients, as in vLLM
FINAL_HEADER = unmarked(f"{CHANNEL}final{MESSAGE}")
HEADER_STARTS = (MARK, " to=")
BETWEEN_MESSAGES = "\n"  # joins messages of one kind, reasoning or content


def mark_token(text: str) -> str:
    """Mark the text of a token if it is a marker."""
    name = text.strip()  # engines may write spaces between special tokens
    return MARK + name if name in TEXTS else text


def mark_text(text: str) -> str:
    """Mark the markers in a prompt, whose tokenizer makes tokens of them."""
    return TEXT.sub(rf"{MARK}\g<0>", text)


def function_of(header: str) -> str | None:
    """Return the name of the function to which a message is addressed."""
    found = RECIPIENT.search(header)
    recipient = found[1] if found else ""
    name = recipient.removeprefix("functions.")
    return name if name and (name != recipient or name.split(".")[0] not in NO_FUNCTIONS) else None


class Harmony(ReasoningFormat):
    """The format with the reasoning in the channel `analysis`; function calls remain part of the content."""

    def reads(self, special_token: str) -> bool:
        return special_token in TEXTS

    def token_text(self, text: str) -> str:
        return mark_token(text)

    def new_parser(self, context: AnswerContext) -> ReasoningParser:
        parser = HarmonyReasoning(context.tools)
        begun = mark_text(context.prompt[max(context.prompt.rfind(unmarked(START)), 0) :])
        if CHANNEL_NAME.search(begun):  # the prompt ends inside a message
            parser.continue_from(begun)
        return parser

    def close(self, prompt: str) -> str:
        return prompt if prompt.endswith(unmarked(MESSAGE)) else prompt + FINAL_HEADER


class HarmonyReasoning(PhasedReasoning):
    """A parser of message headers and bodies; text outside messages is content."""

    def __init__(self, marked: bool) -> None:
        """Keep the marks of tokens in calls of functions if `marked`, for the parser of calls."""
        super().__init__(self._begin)
        self._marked = marked
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
        self._phase = self._header if self._held.startswith(HEADER_STARTS) else self._no_message
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
        self._calls = function_of(head) is not None
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
            if self._calls:
                text += ENDS[0] if found.marker == START else found.marker
        elif not text:
            return None
        return self._split(text)

    def _split(self, text: str) -> SplitText:
        self._has_reasoning |= self._reasons and bool(text)
        self._has_content |= not self._reasons and bool(text)
        text = text if self._marked and not self._reasons else unmarked(text)
        return SplitText(reasoning=text) if self._reasons else SplitText(content=text)

    def _no_message(self, final: bool) -> SplitText | None:
        text, self._held = self._held, ""
        return SplitText(content=text if self._marked else unmarked(text))
