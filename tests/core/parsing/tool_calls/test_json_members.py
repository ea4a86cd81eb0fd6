import pytest

from lmi_core.parsing.tool_calls.json_members import JsonMembers


def read(text: str) -> tuple[JsonMembers, dict[str, str]]:
    """The members, and the characters that were told to be part of each value."""
    members = JsonMembers()
    told: dict[str, str] = {}
    for character in text:
        member = members.member
        value = members.push(character)
        if value:
            assert member is not None
            told[member] = told.get(member, "") + value
    return members, told


def test_values() -> None:
    members, told = read(' {"a": 1, "b" : {"c": ["}", "\\"{"]} ,"d":"x: , }" }')
    assert (members.closed, members.broken) == (True, False)
    assert members.values == {"a": 1, "b": {"c": ["}", '"{']}, "d": "x: , }"}
    assert told == {"a": "1", "b": '{"c": ["}", "\\"{"]}', "d": '"x: , }"'}


def test_value_that_is_being_written() -> None:
    members, told = read('{"a": {"b": [1, ')
    assert (members.closed, members.broken, members.member, members.values) == (False, False, "a", {})
    assert told == {"a": '{"b": [1, '}


def test_empty_object() -> None:
    members, _ = read("{}")
    assert (members.closed, members.broken, members.values) == (True, False, {})


@pytest.mark.parametrize(
    "text", ["x", "[1]", "{x: 1}", '{"a": x}', '{"a" 1}', '{"a": 1: 2}', "{]", "{} {", '{"a": 1,,}']
)
def test_no_object(text: str) -> None:
    assert read(text)[0].broken
