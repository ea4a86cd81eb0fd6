import pytest

from lmi_core.tagged_calls import TaggedCalls
from lmi_core.tool_calls import CallArguments, CallBegun, Content, Piece, coalesced

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "</tool_call>"}}\n</tool_call>'
F = [CallBegun(0, "f"), CallArguments(0, '{"a": "</tool_call>"}')]


def whole(text: str) -> list[Piece]:
    parser = TaggedCalls()
    return coalesced(parser.push(text) + parser.finish())


def by_character(text: str) -> list[Piece]:
    parser = TaggedCalls()
    return coalesced([piece for character in text for piece in parser.push(character)] + parser.finish())


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (CALL, F),
        (f"\n{CALL}\n", F),
        (f"I see. \n{CALL}\nDone. ", [Content("I see."), *F, Content("\nDone.")]),
        (f"{CALL}\n<tool_call>{{}}</tool_call>", [*F, Content("\n<tool_call>{}</tool_call>")]),
        (CALL + CALL, [*F, CallBegun(1, "f"), CallArguments(1, '{"a": "</tool_call>"}')]),
        (CALL.removesuffix("</tool_call>"), F),
        (CALL.removesuffix("</tool_call>") + "more", [*F, Content("more")]),
        ('<tool_call>{"name": "f", "arguments": {"a', [CallBegun(0, "f"), CallArguments(0, '{"a')]),
        ('<tool_call>{"name": "f', [Content('<tool_call>{"name": "f')]),
        ("<tool_call>f(1)</tool_call>", [Content("<tool_call>f(1)</tool_call>")]),
        ("a <b> <tool", [Content("a <b> <tool")]),
        ("<<tool_call", [Content("<<tool_call")]),
        ("no call \n", [Content("no call \n")]),
        ("", []),
    ],
)
def test_calls(text: str, pieces: list[Piece]) -> None:
    assert whole(text) == pieces
    assert by_character(text) == pieces


def test_content_is_told_of_as_soon_as_it_is_known() -> None:
    parser = TaggedCalls()
    assert parser.push("one ") == [Content("one")]
    assert parser.push("two <tool") == [Content(" two")]
    assert parser.push(" four") == [Content(" <tool four")]
