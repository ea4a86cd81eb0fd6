"""The pieces of a sequence: token by token the same as all at once."""

import itertools

import pytest

from lmi_core.generation.output import NO_TOKEN, Token
from lmi_core.parsing.reasoning.formats import find_reasoning_format
from lmi_core.parsing.reasoning.parser import AnswerContext
from lmi_core.parsing.reasoning.reader import Reasoning
from lmi_core.parsing.tool_calls.formats import find_format
from lmi_core.parsing.tool_calls.parser import CallArguments, CallBegun, Content
from lmi_handlers.chat.custom_calls import CustomCalls
from lmi_handlers.chat.pieces import AnswerPiece, AnswerReader, ReasoningText
from lmi_plugins.backends.scripted import WordTokenizer
from tests.handlers.chat.said_calls import SAID
from tests.handlers.chat.said_calls import tokens as split

SCHEMAS = {"weather": {"type": "object", "properties": {"city": {"type": "string"}}}}
THOUGHT = "<think>It is hot there.</think>\n\n"
TEXTS = [
    "",
    "Yes.",
    "<think>cut",
    f"{THOUGHT}Yes.",
    f"{THOUGHT}Yes. {THOUGHT}No.",
    *(THOUGHT + said for said in SAID.values()),
]


def reader(tool_format: str | None, reasoning_format: str | None) -> AnswerReader:
    parser = find_format(tool_format).make(SCHEMAS) if tool_format else None
    if reasoning_format is None:
        return AnswerReader(parser, None)
    context = AnswerContext("user: Weather?", tools=parser is not None)
    return AnswerReader(
        parser, Reasoning(find_reasoning_format(reasoning_format), WordTokenizer(), context).new_reader()
    )


def together(pieces: list[AnswerPiece]) -> list[AnswerPiece]:
    """Join neighbours of one kind."""
    found: list[AnswerPiece] = []
    for piece in pieces:
        last = found[-1] if found else None
        match last, piece:
            case ReasoningText(before), ReasoningText(text):
                found[-1] = ReasoningText(before + text)
            case Content(before), Content(text):
                found[-1] = Content(before + text)
            case CallArguments(number, before), CallArguments(index, text) if number == index:
                found[-1] = CallArguments(index, before + text)
            case _:
                found.append(piece)
    return found


@pytest.mark.parametrize("tool_format", [None, *SAID])
def test_all_at_once(tool_format: str | None) -> None:
    for reasoning_format, text in itertools.product([None, "deepseek_r1", "deepseek_v3", "minimax_m2"], TEXTS):
        tokens = [Token(number, part) for number, part in enumerate(split(text))] or [NO_TOKEN]
        one_by_one, at_once = reader(tool_format, reasoning_format), reader(tool_format, reasoning_format)
        pieces = [piece for token in tokens for piece in one_by_one.read(token, token is tokens[-1])]
        assert together(at_once.read_all(tokens)) == together(pieces), (reasoning_format, text)
        assert at_once.num_reasoning_tokens == one_by_one.num_reasoning_tokens, (reasoning_format, text)


def test_reasoning_content_and_calls() -> None:
    found = together(reader("granite", "deepseek_v3").read_all([Token(1, THOUGHT + SAID["granite"])]))
    assert found == [
        ReasoningText("It is hot there."),
        Content("Let me see."),
        CallBegun(0, "weather"),
        CallArguments(0, '{"city": "Paris"}'),
    ]


@pytest.mark.parametrize("step", [1, 2, 5])
@pytest.mark.parametrize("custom", [False, True])
@pytest.mark.parametrize("arguments", ['{"city": "Paris"}', '{"a": 1}', '{"input": "x"}'])
def test_reasoning_after_a_call(arguments: str, custom: bool, step: int) -> None:
    """The reasoning follows the last arguments of the call, however the text is split."""
    calls = find_format("openai").make(SCHEMAS)
    context = AnswerContext("user: Weather?", tools=True)
    reasoning = Reasoning(find_reasoning_format("gpt-oss"), WordTokenizer(), context).new_reader()
    answer_reader = AnswerReader(CustomCalls(calls, {"weather"}) if custom else calls, reasoning)
    said = (
        f"<|channel|>commentary to=functions.weather<|message|>{arguments}<|call|>"
        "<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hot."
    )
    parts = split(said, step)
    pieces = [
        piece
        for number, part in enumerate(parts, 1)
        for piece in answer_reader.read(Token(number, part), number == len(parts))
    ]
    assert together(pieces) == [
        CallBegun(0, "weather", plain=custom),
        CallArguments(0, "x" if custom and "input" in arguments else arguments),
        ReasoningText("Hm."),
        Content("\nHot."),
    ]
