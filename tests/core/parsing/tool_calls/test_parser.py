from lmi_core.parsing.tool_calls.marked_json import MarkedJson
from lmi_core.parsing.tool_calls.parser import CallArguments, CallBegun, Content, FirstCall, NamedCall, Piece, coalesce


def test_named_call() -> None:
    parser = NamedCall("f")
    assert parser.push('{"a"') == [CallBegun(0, "f"), CallArguments(0, '{"a"')]
    assert parser.push(": 1}") == [CallArguments(0, ": 1}")]
    assert parser.finish() == []


def test_named_call_without_a_text() -> None:
    parser = NamedCall("f")
    assert parser.push("") + parser.finish() == [CallBegun(0, "f")]


def test_first_call() -> None:
    call = '<tool_call>{"name": "f"}</tool_call>'
    parser = FirstCall(MarkedJson({}, ["<tool_call>"], ends=["</tool_call>"]))
    pieces = coalesce(parser.push(f"a{call}b{call}c<"))
    assert pieces == [Content("a"), CallBegun(0, "f"), CallArguments(0, "{}"), Content("bc")]
    assert parser.finish() == [Content("<")]


def test_coalesced() -> None:
    pieces: list[Piece] = [
        Content("a"),
        Content("b"),
        CallArguments(0, "c"),
        CallArguments(0, "d"),
        CallArguments(1, "e"),
    ]
    assert coalesce(pieces) == [Content("ab"), CallArguments(0, "cd"), CallArguments(1, "e")]
