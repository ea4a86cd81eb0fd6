import pytest

from lmi_core.parsing.tool_calls.marked_json import BareJson, MarkedJson
from lmi_core.parsing.tool_calls.parser import CallArguments, CallBegun, Content, Piece, coalesce

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "</tool_call>"}}\n</tool_call>'
F = [CallBegun(0, "f"), CallArguments(0, '{"a": "</tool_call>"}')]
BARE_F, BARE_G = CallBegun(0, "f"), CallBegun(1, "g")


def tagged() -> MarkedJson:
    return MarkedJson({}, ["<tool_call>"], ends=["</tool_call>"])


def bare() -> BareJson:
    return BareJson({"f": {}, "g": {}})


def pieces_of(parser: MarkedJson | BareJson, parts: list[str]) -> list[Piece]:
    return coalesce([piece for part in parts for piece in parser.push(part)] + parser.finish())


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (CALL, F),
        (f"\n{CALL}\n", F),
        (f"I see. \n{CALL}\nDone. ", [Content("I see."), *F, Content("\nDone.")]),
        (f"{CALL}\n<tool_call>{{}}</tool_call>", [*F, Content("\n<tool_call>{}")]),
        (CALL + CALL, [*F, CallBegun(1, "f"), CallArguments(1, '{"a": "</tool_call>"}')]),
        (CALL.removesuffix("</tool_call>"), F),
        (CALL.removesuffix("</tool_call>") + "more", [*F, Content("\nmore")]),
        ('<tool_call>{"name": "f", "arguments": {"a', [CallBegun(0, "f"), CallArguments(0, '{"a')]),
        ('<tool_call>{"name": "f', [Content('<tool_call>{"name": "f')]),
        ("<tool_call>f(1)</tool_call>", [Content("<tool_call>f(1)</tool_call>")]),
        ("a <b> <tool", [Content("a <b> <tool")]),
        ("<<tool_call", [Content("<<tool_call")]),
        ("no call \n", [Content("no call \n")]),
        ("", []),
    ],
)
def test_calls_in_tags(text: str, pieces: list[Piece]) -> None:
    assert pieces_of(tagged(), [text]) == pieces
    assert pieces_of(tagged(), list(text)) == pieces


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ('{"name": "f", "parameters": {"a": 1}}', [BARE_F, CallArguments(0, '{"a": 1}')]),
        ('{"arguments": {"a": 1}, "name": "f"}', [BARE_F, CallArguments(0, '{"a": 1}')]),
        ('{"name": "f"}', [BARE_F, CallArguments(0, "{}")]),
        (
            ' {"name": "f", "parameters": {}}; {"name": "g", "arguments": {}}\n',
            [BARE_F, CallArguments(0, "{}"), BARE_G, CallArguments(1, "{}")],
        ),
        (
            '[{"name": "f", "parameters": {}}, {"name": "g", "parameters": {}}]',
            [BARE_F, CallArguments(0, "{}"), BARE_G, CallArguments(1, "{}")],
        ),
        ('{"name": "f", "parameters": {}} and', [BARE_F, CallArguments(0, "{}"), Content(" and")]),
        ('{"name": "f", "parameters": {"a": [', [BARE_F, CallArguments(0, '{"a": [')]),
        ('{"name": "h", "parameters": {}}', [Content('{"name": "h", "parameters": {}}')]),
        ('{"name": ["f"], "parameters": {}}', [Content('{"name": ["f"], "parameters": {}}')]),
        ('{"answer": 1} ', [Content('{"answer": 1} ')]),
        ('{"name": "f', [Content('{"name": "f')]),
        (" {not json", [Content(" {not json")]),
        ("\n", [Content("\n")]),
        ("", []),
    ],
)
def test_bare_calls(text: str, pieces: list[Piece]) -> None:
    assert pieces_of(bare(), [text]) == pieces
    assert pieces_of(bare(), list(text)) == pieces


def test_content_is_told_of_as_soon_as_it_is_known() -> None:
    parser = tagged()
    assert parser.push("one ") == [Content("one")]
    assert parser.push("two <tool") == [Content(" two")]
    assert parser.push(" four") == [Content(" <tool four")]


def test_other_json_is_content_as_soon_as_its_first_member_is_no_calls() -> None:
    parser = bare()
    assert parser.push('See {"answer') == [Content("See")]
    assert parser.push('":') == [Content(' {"answer":')]
