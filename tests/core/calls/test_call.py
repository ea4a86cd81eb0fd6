"""The JSON of a call's body, parsed once for all who look at it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from lmi_core.calls.call import Call, has_more_members
from lmi_core.errors import InvalidPayload


def call(body: bytes) -> Call:
    return Call({}, {}, body, "id")


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the value that was parsed from JSON."""
    texts: list[bytes] = []
    loads: Callable[[bytes], Any] = orjson.loads

    def noted(text: bytes) -> Any:
        texts.append(text)
        return loads(text)

    monkeypatch.setattr(orjson, "loads", noted)
    return texts


def test_body_is_parsed_once_and_when_it_is_asked_for(parsed: list[bytes]) -> None:
    given = call(b'{"a": [1]}')
    assert parsed == []
    assert given.json_object() is given.json()
    assert (given.json(), parsed) == ({"a": [1]}, [b'{"a": [1]}'])


def test_call_with_other_headers_has_the_same_json(parsed: list[bytes]) -> None:
    given = call(b"[1]")
    first = replace(given, headers={"a": "b"})
    assert first.json() is given.json() is replace(first, path="/").json()
    assert len(parsed) == 1


def test_call_with_another_body_has_its_own_json() -> None:
    given = call(b"[1]")
    assert (given.json(), replace(given, body=b"[2]").json(), given.json()) == ([1], [2], [1])


def test_json_that_is_known_is_not_parsed(parsed: list[bytes]) -> None:
    given = call(b"[1]").with_json({"a": "é"})
    assert (given.json(), given.body, parsed) == ({"a": "é"}, '{"a":"é"}'.encode(), [])


def test_null_is_parsed_once(parsed: list[bytes]) -> None:
    given = call(b"null")
    assert (given.json(), given.json(), len(parsed)) == (None, None, 1)


def test_all_who_ask_are_told_what_is_wrong(parsed: list[bytes]) -> None:
    given = call(b"{")
    errors: list[str] = []
    for ask in (given.json, given.json_object, replace(given, path="/").json):
        with pytest.raises(InvalidPayload, match=r"^the body is not valid JSON: ") as raised:
            ask()
        errors.append(raised.value.message)
    assert (len(set(errors)), parsed) == (1, [b"{"])


def test_json_that_is_no_object() -> None:
    with pytest.raises(InvalidPayload, match=r"^the body must be a JSON object. Given: \[1\]$"):
        call(b"[1]").json_object()


def test_nesting_that_can_be_read_and_not_written() -> None:
    given = call(b'{"a":' * 500 + b"1" + b"}" * 500)
    with pytest.raises(InvalidPayload, match=r"^the body cannot be written as JSON: "):
        given.with_json({**given.json_object(), "b": 1})


def test_text() -> None:
    assert call("Grüße".encode()).text() == "Grüße"


def test_what_is_no_text_is_the_client_s_error() -> None:
    with pytest.raises(InvalidPayload, match="the body must be UTF-8 text: 'utf-8' codec can't decode byte 0xff"):
        call(b"\xff").text()


@pytest.mark.parametrize(
    ("body", "members"),
    [
        (b"1", 0),
        (b"{}", 1),
        (b'{"a": [1, 2, {"b": null}]}', 5),
        (b'{"a": "{[:"}', 2),
        (b'{"a\\": {": "\\\\"}', 2),
        (b'"\\\\" : [', 2),
        (b'["unclosed {[:', 1),
        (b'["unclosed {[:\\', 1),
        (b'["' + b"{" * 200_000 + b'\\"' * 2000 + b"{" * 200 + b'", {}]', 2),
        (b"[" + b"1," * 200_000 + b"{}]", 2),
        (b'["two\nlines \\\n{", {}]', 2),
    ],
)
def test_count(body: bytes, members: int) -> None:
    assert not has_more_members(body, members)
    assert members == 0 or has_more_members(body, members - 1)


@pytest.mark.parametrize(
    "body", [b'"\\' * 500_000, b'"\\"{' * 300_000, b'"{' + b'\\"{' * 300_000 + b"\\", b"[" * 10**6]
)
def test_bodies_that_are_not_json_take_linear_time(body: bytes) -> None:
    has_more_members(body, 10)  # quadratic time would take hours
