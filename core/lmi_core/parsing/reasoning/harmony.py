"""The harmony format of gpt-oss: messages in channels, one of which contains the reasoning.

Only tokens are markers. The same text in several tokens, which a model may quote, is part of a message.
"""

import re
from collections.abc import Iterator

from lmi_core.parsing.reasoning.parser import AnswerContext, ReasoningFormat, ReasoningParser
from lmi_core.parsing.search import MARK, unmarked

TEXTS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>")
TEXT = re.compile("|".join(map(re.escape, TEXTS)))
MARKERS = tuple(MARK + text for text in TEXTS)
START, CHANNEL, MESSAGE, CONSTRAIN, *ENDS = MARKERS
BODY_ENDS = (*ENDS, START)
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


class HarmonyReasoning(ReasoningParser):
    """A parser of message headers and bodies; text outside messages is content."""

    def __init__(self, marked: bool) -> None:
        """Keep the marks of tokens in calls of functions if `marked`, for the parser of calls."""
        super().__init__()
        self._marked = marked
        self._has_reasoning = False
        self._has_content = False

    def continue_from(self, message: str) -> None:
        """Continue from a prompt that ends inside a message; return none of the prompt's text."""
        self.push(message)
        self._has_reasoning = self._has_content = False

    def read(self) -> Iterator[None]:
        while not self.final and any(start.startswith(self.held) and start != self.held for start in HEADER_STARTS):
            self.undecided = bool(self.held)
            yield
        has_messages = self.held.startswith(HEADER_STARTS)
        while not has_messages:
            self.undecided = False
            self._write(self.held)
            self.held = ""
            yield
        while True:
            while MESSAGE not in self.held:
                self.undecided = bool(self.held)
                yield  # at the end of the text, the header is dropped
            header, _, self.held = self.held.partition(MESSAGE)
            self.undecided = False
            channel, calls = CHANNEL_NAME.search(header), function_of(header) is not None
            self.inside = not calls and channel is not None and channel[1] == "analysis"
            has_text = self._has_reasoning if self.inside else self._has_content
            self._write(header + MESSAGE if calls else BETWEEN_MESSAGES if has_text else "")
            end = ""
            while not end:
                text, end = self.read_until(BODY_ENDS)
                self._write(text)
                if not end:
                    yield
            if end == START:
                self.held = START + self.held
            self._write((ENDS[0] if end == START else end) if calls else "")
            self.inside = False

    def _write(self, text: str) -> None:
        if self.inside:
            self._has_reasoning |= bool(text)
            self.reasoning += unmarked(text)
        else:
            self._has_content |= bool(text)
            self.content += text if self._marked else unmarked(text)
