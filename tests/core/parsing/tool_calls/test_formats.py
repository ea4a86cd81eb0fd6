import json

import pytest

from lmi_core.parsing.reasoning.harmony import mark_text
from lmi_core.parsing.tool_calls import incremental
from lmi_core.parsing.tool_calls.formats import ALIASES, FORMATS, find_format
from lmi_core.parsing.tool_calls.parser import CallBegun
from tests.core.parsing.tool_calls.written_calls import (
    CLOCK,
    HARD,
    KIMI,
    OBJECT,
    PARIS,
    TWO_HARD,
    TWO_PARIS,
    WEATHER,
    WRITTEN,
    Calls,
    read_as,
    splits,
)

# Texts that look like calls, calls that are cut or damaged, and calls among other text.
STRANGE: list[tuple[str, str, str, Calls]] = [
    *((name, "No call. \n", "No call. \n", []) for name in FORMATS),
    *((name, "", "", []) for name in FORMATS),
    ("hermes", "<think>\nhm\n</think>\n\n<tool_call>\n" + OBJECT, "<think>\nhm\n</think>", [WEATHER]),
    ("hermes", f"<tool_call><tool_call>{OBJECT}</tool_call></tool_call>", "<tool_call>", [WEATHER]),
    ("hermes", f"<tool_call>{OBJECT[:-1]}\n</tool_call> Done.", " Done.", [WEATHER]),
    ("hermes", f"<tool_call>{OBJECT}}}</tool_call>", "}", [WEATHER]),
    ("hermes", '<tool_call>{"arguments": {"a": 1}, "name": "clock"}</tool_call>', "", [("clock", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "clock", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [("clock", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "clock", "arguments": null}</tool_call>', "", [CLOCK]),
    ("hermes", '<tool_call>{"name": "clock"}</tool_call>', "", [CLOCK]),
    ("hermes", '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>', "", [("unknown", "{}")]),
    ("hermes", '<tool_call>{"name": "clock", "arguments": {"a": "b', "", [("clock", '{"a": "b')]),
    ("hermes", '<tool_call>{"name": "clo', '<tool_call>{"name": "clo', []),
    ("hermes", '<tool_call>{"name": "clock", a, {"b": "}"}}</tool_call>.', ".", [CLOCK]),
    ("hermes", '<tool_call>{"name": "clock", "id": a, "arguments": {"a": 1}}</tool_call>', "", [("clock", '{"a": 1}')]),
    ("apertus", '<|tools_prefix|>[{"clock": null}]<|tools_suffix|>', "", [CLOCK]),
    ("llama3_json", 'So {"a": [1]} or [2] or {"name": 3}.', 'So {"a": [1]} or [2] or {"name": 3}.', []),
    ("llama3_json", '{"name": "unknown", "parameters": {}}', '{"name": "unknown", "parameters": {}}', []),
    ("llama3_json", '{"type": "function", "name": "clock", "parameters": {}}', "", [CLOCK]),
    ("llama3_json", "<|python_tag|>print(1)<|eom_id|>", "print(1)", []),
    ("mistral", "[TOOL_CALLS]I cannot do {that}.", "I cannot do {that}.", []),
    ("mistral", '[TOOL_CALLS]clock[ARGS]{"a": 1', "", [("clock", '{"a": 1')]),
    ("mistral", f"[TOOL_CALLS]weather[ARGS]{HARD}\nDone.", "\nDone.", [WEATHER]),
    ("mistral", "[TOOL_CALLS]clo", "clo", []),
    ("kimi_k2", f"<|tool_calls_section_begin|>{KIMI('clock', 0, 'now')}", "now", [CLOCK]),
    ("kimi_k2", "<|tool_calls_section_begin|>Well.<|tool_calls_section_end|>", "Well.", []),
    ("kimi_k2", '<|tool_call_begin|>functions.clock:0<|tool_call_argument_begin|>{"a', "", [("clock", '{"a')]),
    (
        "deepseek_v3",
        "<｜tool▁call▁begin｜>clock<｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n{}",
        "clock",
        [CLOCK],
    ),
    ("openai", "Hello", "Hello", []),
    ("openai", mark_text("<|channel|>analysis<|message|>Hm"), "", []),
    (
        "openai",
        mark_text("<|channel|>commentary to=functions.clock <|constrain|>json<|message|>{"),
        "",
        [("clock", "{")],
    ),
    ("openai", mark_text("<|channel|>commentary to=clock<|message|> \n<|call|>"), "", [CLOCK]),
    ("openai", mark_text("<|channel|>commentary to=clock<|message|> now <|call|>"), "", [("clock", "now")]),
    ("openai", mark_text("<|channel|>commentary to=python.x<|message|>1"), "1", []),
    (
        "openai",
        mark_text("<|channel|>commentary to=clock<|message|>")
        + '{"a": "<|call|>'
        + mark_text("<|start|>assistant<|message|>So"),
        "So",
        [("clock", '{"a": "<|call|>')],
    ),
    ("hermes", mark_text("<|end|>"), "<|end|>", []),
    ("qwen3_coder", "a <tool_call> b <function= c", "a <tool_call> b <function= c", []),
    (
        "qwen3_coder",
        "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n<parameter=days>\n3\n</parameter>\n</tool_call>Done.",
        "Done.",
        [("weather", PARIS)],
    ),
    ("qwen3_coder", "<tool_call>\n<function=weather>\n<parameter=city>\nPar", "", [("weather", '{"city": "Par')]),
    ("qwen3_coder", "<function=weather><parameter=city>Paris</parameter>", "", [("weather", '{"city": "Paris"}')]),
    ("qwen3_coder", "<function=weather><parameter=days", "", [("weather", "")]),
    ("qwen3_coder", "<function=weather><parameter=city>Par</parameter>\n<para", "", [("weather", '{"city": "Par"}')]),
    ("qwen3_coder", "<function=clock>\n</func", "", [CLOCK]),
    (
        "qwen3_coder",
        "<function=weather>\nIn <b>\n<parameter=city>Paris</parameter>or so<parameter=days>3</parameter></function>.",
        "\nIn <b>\nor so.",
        [("weather", PARIS)],
    ),
    ("glm45", "<tool_call>not a call</tool_call>", "<tool_call>not a call</tool_call>", []),
    ("glm45", "<tool_call>clock", "<tool_call>clock", []),
    ("pythonic", "See [weather] and [1, 2] [clock()", "See [weather] and [1, 2]", [CLOCK]),
    ("pythonic", "[unknown(a=1)]", "[unknown(a=1)]", []),
    ("pythonic", "[weather(city='\\ud83d')]", "", [("weather", '{"city": "\\ud83d"}')]),
    ("pythonic", "[weather(city=here + there)]", "", [("weather", '{"city": "here + there"}')]),
    ("pythonic", "[weather(days=-1e999)]", "", [("weather", '{"days": "-1e999"}')]),
    ("pythonic", '[weather(city="Paris", days=3', "", [("weather", '{"city": "Paris"')]),
    ("pythonic", "[weather(days=3, 'Paris')]", "", [("weather", '{"days": 3, "city": "Paris"}')]),
    ("lfm2", "<|tool_call_start|>Well.<|tool_call_end|>", "Well.", []),
    ("functiongemma", "<start_function_call>Well.<end_function_call>", "Well.", []),
    ("functiongemma", "<start_function_call>call:clock{a:<escape>b", "", [("clock", "")]),
    (
        "functiongemma",
        "<start_function_call>call:clock{a:{at:12:30,b c:[two words,1.5, true,],<escape>:<escape>:<escape>,<escape>}}",
        "",
        [("clock", '{"a": {"at": "12:30", "b c": ["two words", 1.5, true], ":": ","}}')],
    ),
    ("functiongemma", "<start_function_call>call:clock{a:{b:[}}", "", [("clock", "")]),
    ("functiongemma", "<start_function_call>call:clock{a:[b{}]}", "", [("clock", '{"a": "[b{}]"}')]),
]


@pytest.mark.parametrize(("name", "text", "content", "calls"), [*WRITTEN, *STRANGE])
def test_every_split_of_a_text_gives_the_same(name: str, text: str, content: str, calls: Calls) -> None:
    assert read_as(name, [text]) == (content, calls)
    for parts in splits(text):
        assert read_as(name, parts) == (content, calls), parts


def test_every_format_is_tested_with_content_and_two_calls() -> None:
    assert {name for name, _, content, calls in WRITTEN if content and len(calls) == 2} == FORMATS.keys()


def test_expected_arguments_are_json() -> None:
    assert all(isinstance(json.loads(arguments), dict) for _, arguments in [*TWO_HARD, *TWO_PARIS])


@pytest.mark.parametrize("alias", ALIASES)
def test_alias(alias: str) -> None:
    assert find_format(alias) is FORMATS[ALIASES[alias]]
    assert alias not in FORMATS


def test_unknown_format() -> None:
    with pytest.raises(
        ValueError, match=r"must be a known tool-call format.* Did you mean `mistral`\? Known: apertus, .*xlam$"
    ):
        find_format("mistrl")


@pytest.mark.parametrize("name", ["mistral", "kimi_k2", "deepseek_v31", "internlm"])
def test_markers_are_known(name: str) -> None:
    text = next(text for each, text, _, _ in WRITTEN if each == name)
    assert any(marker in text for marker in find_format(name).markers)


def test_call_is_told_of_as_soon_as_its_name_is_known() -> None:
    parser = find_format("qwen3_coder").make({})
    assert parser.push("<tool_call>\n<function=clo") == []
    assert parser.push("ck>") == [CallBegun(0, "clock")]


def test_too_much_that_is_read_again_turns_all_that_follows_into_content(monkeypatch: pytest.MonkeyPatch) -> None:
    call = '{"name": "clock", "parameters": {}}'
    nested = '{"arguments": [' * 20
    monkeypatch.setattr(incremental, "MAX_REREAD", 50_000)
    assert read_as("llama3_json", [nested, "]}" * 20, call]) == (nested + "]}" * 20, [CLOCK])
    monkeypatch.setattr(incremental, "MAX_REREAD", 100)
    assert read_as("llama3_json", [call, nested, "]}" * 20, call]) == (nested + "]}" * 20 + call, [CLOCK])


@pytest.mark.parametrize(
    ("name", "begin", "value", "end"),
    [
        ("pythonic", "[weather(days=", "0x" + "f" * 5_000, ")]"),
        ("functiongemma", "<start_function_call>call:weather{days:", "[" * 20_000 + "]" * 20_000, "}"),
    ],
)
def test_value_that_cannot_be_read_is_text(name: str, begin: str, value: str, end: str) -> None:
    _, [(_, arguments)] = read_as(name, [begin + value + end])
    assert json.loads(arguments) == {"days": value}


def test_name_that_does_not_end_is_read_in_linear_time() -> None:
    """The square of its length would be minutes: the time limit of a test ends it."""
    name = "a" * 300_000
    assert read_as("qwen3_coder", [f"<function={name}>"]) == ("", [(name, "{}")])
