"""The input of a custom tool's call: the same text, however the call is split and whatever is wrong with its JSON."""

import json

import pytest

from lmi_core.parsing.tool_calls.formats import find_format
from lmi_core.parsing.tool_calls.parser import CallArguments, CallBegun, Content, NamedCall, Piece, coalesce
from lmi_handlers.chat.custom_calls import CustomCalls
from tests.handlers.chat.said_calls import PARIS, SAID, tokens

PATCH = '*** Begin Patch\n*** Update File: a\\b.py\n@@\n-x = "\t"\n+x = "é 😀"\n*** End Patch'
SCHEMAS = {name: {"type": "object", "properties": {"input": {"type": "string"}}} for name in ("patch", "other")}


def read(arguments: str, step: int) -> str:
    """Return the input in the arguments, of which `step` characters arrive at a time."""
    parser = CustomCalls(NamedCall("patch"), {"patch"})
    parts = [arguments[start : start + step] for start in range(0, len(arguments), step)]
    pieces: list[Piece] = [piece for part in parts for piece in parser.push(part)]
    begun, *rest = pieces + parser.finish()
    assert begun == CallBegun(0, "patch", plain=True)
    texts = [piece.text for piece in rest if isinstance(piece, CallArguments)]
    assert len(texts) == len(rest)
    assert "" not in texts
    return "".join(texts)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (json.dumps({"input": PATCH}), PATCH),
        (json.dumps({"input": PATCH}, ensure_ascii=False, indent=2), PATCH),
        (json.dumps({"input": PATCH, "more": "x"}), PATCH),
        (json.dumps({"more": "x", "input": PATCH}), PATCH),
        (json.dumps({"patch": "x"}), '{"patch": "x"}'),
        (json.dumps({"input": 5}), '{"input": 5}'),
        (json.dumps(PATCH), PATCH),
        (PATCH, PATCH),
        ('{"input": ""}', ""),
        ("", ""),
        ('{ "inp', ""),
        ("{}", ""),
        ('{"input": "a\nb"}', "a\nb"),
        (r'{"input": "a\$b\q"}', r"a\$b\q"),
        (r'{"input": "a\uZZZZb"}', r"a\uZZZZb"),
        (r'{"input": "\ud83d is half"}', "\ufffd is half"),
        (r'{"input": "\ud83d\u0041"}', "\ufffdA"),
        (r'{"input": "\\ud83d\\"}', r"\ud83d" + "\\"),
        ('{"input": "cut', "cut"),
        (r'{"input": "cut\u00', r"cut\u00"),
        (r'{"input": "cut' + "\\", "cut"),
    ],
)
def test_input(arguments: str, expected: str) -> None:
    assert {read(arguments, step) for step in (1, 2, 3, 7, len(arguments) or 1)} == {expected}


@pytest.mark.parametrize("form", SAID)
def test_format(form: str) -> None:
    """Every format's call is converted, and those of other tools are not."""
    said = SAID[form].replace("weather", "patch").replace("city", "input")
    for names in ({"patch"}, {"other"}):
        parser = CustomCalls(find_format(form).make(SCHEMAS), names)
        pieces: list[Piece] = [piece for text in tokens(said) for piece in parser.push(parser.token_text(text))]
        content, begun, arguments = coalesce([*pieces, *parser.finish()])
        assert (content, isinstance(begun, CallBegun) and begun.plain) == (Content("Let me see."), "patch" in names)
        assert isinstance(arguments, CallArguments)
        plain = "Paris" if "patch" in names else json.loads(PARIS.replace("city", "input"))
        assert (arguments.text if "patch" in names else json.loads(arguments.text)) == plain


def test_calls_next_to_each_other() -> None:
    parser = CustomCalls(find_format("hermes").make(SCHEMAS), {"patch"})
    call = '<tool_call>{{"name": "{}", "arguments": {{"{}": "x"}}}}</tool_call>'
    said = "".join((call.format("patch", "a"), call.format("other", "input"), call.format("patch", "input"), " Done."))
    assert coalesce([*parser.push(said), *parser.finish()]) == [
        CallBegun(0, "patch", plain=True),
        CallArguments(0, '{"a": "x"}'),
        CallBegun(1, "other"),
        CallArguments(1, '{"input": "x"}'),
        CallBegun(2, "patch", plain=True),
        CallArguments(2, "x"),
        Content(" Done."),
    ]
