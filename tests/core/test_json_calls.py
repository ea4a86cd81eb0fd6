import pytest

from lmi_core.json_calls import JsonCalls
from lmi_core.tool_calls import CallArguments, CallBegun, Content, Piece, coalesced

F, G = CallBegun(0, "f"), CallBegun(1, "g")


def whole(text: str) -> list[Piece]:
    parser = JsonCalls({"f", "g"}, ";,")
    return coalesced(parser.push(text) + parser.finish())


def by_character(text: str) -> list[Piece]:
    parser = JsonCalls({"f", "g"}, ";,")
    return coalesced([piece for character in text for piece in parser.push(character)] + parser.finish())


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ('{"name": "f", "parameters": {"a": 1}}', [F, CallArguments(0, '{"a": 1}')]),
        ('{"arguments": {"a": 1}, "name": "f"}', [F, CallArguments(0, '{"a": 1}')]),
        ('{"name": "f"}', [F, CallArguments(0, "{}")]),
        (
            ' {"name": "f", "parameters": {}}; {"name": "g", "arguments": {}}\n',
            [F, CallArguments(0, "{}"), G, CallArguments(1, "{}")],
        ),
        ('{"name": "f", "parameters": {}} and', [F, CallArguments(0, "{}"), Content(" and")]),
        ('{"name": "f", "parameters": {"a": [', [F, CallArguments(0, '{"a": [')]),
        ('{"name": "h", "parameters": {}}', [Content('{"name": "h", "parameters": {}}')]),
        ('{"name": ["f"], "parameters": {}}', [Content('{"name": ["f"], "parameters": {}}')]),
        ('{"answer": 1} ', [Content('{"answer": 1} ')]),
        ('{"name": "f', [Content('{"name": "f')]),
        (" {not json", [Content(" {not json")]),
        ("\n", [Content("\n")]),
        ("", []),
    ],
)
def test_calls(text: str, pieces: list[Piece]) -> None:
    assert whole(text) == pieces
    assert by_character(text) == pieces
