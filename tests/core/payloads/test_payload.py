from typing import Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from lmi_core.errors import InvalidPayload
from lmi_core.payloads.payload import MAX_VALUE_LENGTH, quote, read_object, read_payload


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    role: str


class Payload(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    inputs: str = Field(min_length=1)
    temperature: float = Field(1.0, ge=0)
    messages: list[Message] = Field(default_factory=list, min_length=1)
    even: int = 0
    odd: int = 1

    @field_validator("even")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value

    @model_validator(mode="after")
    def _neighbours(self) -> Self:
        if abs(self.even - self.odd) != 1:
            raise ValueError("`even` and `odd` must be neighbours")
        return self


def error_of(body: bytes) -> str:
    with pytest.raises(InvalidPayload) as raised:
        read_payload(body, Payload)
    return raised.value.message


def test_read_object() -> None:
    assert read_object(b' {"a": [1, "\xc3\xa9"]} ') == {"a": [1, "é"]}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xef\xbb\xbf",
        b"\xef\xbb\xbf\xef\xbb\xbf{}",
        b"{'a': 1}",
        b'{"a": NaN}',
        b'{"a": "\xff"}',
        b'{"a": 1} x',
    ],
)
def test_not_json(body: bytes) -> None:
    with pytest.raises(InvalidPayload, match=r"^the body is not valid JSON: "):
        read_object(body)


def test_object_that_is_no_body() -> None:
    with pytest.raises(InvalidPayload, match=r"^the header must be a JSON object"):
        read_object(b"[]", "the header")


@pytest.mark.parametrize(
    ("body", "given"),
    [
        (b"[1]", "[1]"),
        (b'"text"', "'text'"),
        (b"null", "None"),
        (b"3", "3"),
        (b'"' + b"x" * 100 + b'"', "'" + "x" * 79 + "..."),
    ],
)
def test_not_an_object(body: bytes, given: str) -> None:
    with pytest.raises(InvalidPayload) as raised:
        read_object(body)
    assert raised.value.message == f"the body must be a JSON object. Given: {given}"


def test_read_payload() -> None:
    assert read_payload(b'{"inputs": "x", "temperature": 2}', Payload) == Payload(inputs="x", temperature=2.0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{}", "`inputs` is required"),
        (b'{"inputs": 3}', "`inputs` must be a valid string. Given: 3"),
        (b'{"inputs": null}', "`inputs` must be a valid string. Given: None"),
        (b'{"inputs": ""}', "`inputs` must have at least 1 character. Given: ''"),
        (
            b'{"inputs": "x", "temperature": -1}',
            "`temperature` must be greater than or equal to 0. Given: -1",
        ),
        (b'{"inputs": "x", "temperature": "1"}', "`temperature` must be a valid number. Given: '1'"),
        (b'{"inputs": "x", "even": 3}', "`even` must be even. Given: 3"),
        (b'{"inputs": "x", "even": 2, "odd": 5}', "`even` and `odd` must be neighbours"),
        (b'{"inputs": "x", "messages": [{"role": "a"}, {}]}', "`messages.1.role` is required"),
        (b'{"inputs": "x", "messages": [{"role": 1}]}', "`messages.0.role` must be a valid string. Given: 1"),
        (
            b'{"inputs": "x", "temprature": 1}',
            "`temprature` is not a field of this request. Did you mean `temperature`?",
        ),
        (b'{"inputs": "x", "messages": [{"role": "a", "b": 1}]}', "`messages.0.b` is not a field of this request."),
        (b'{"inputs": "x", "messages": []}', "`messages` must have at least 1 item. Given: []"),
        (b'{"inputs": "x", "zzz": 1}', "`zzz` is not a field of this request."),
        (b"[]", "the body must be a JSON object. Given: []"),
    ],
)
def test_message_names_field_bound_and_value(body: bytes, message: str) -> None:
    assert error_of(body) == message


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a", "'a'"), ("x" * 78, repr("x" * 78)), ("x" * 79, "'" + "x" * 79 + "..."), ([None, True], "[None, True]")],
)
def test_shown(value: object, expected: str) -> None:
    assert quote(value) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=100),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=100), inner),
)


@given(JSON)
@settings(deadline=None, derandomize=True, database=None)
def test_what_is_shown_is_the_beginning(value: object) -> None:
    text = repr(value)
    assert quote(value) == (text if len(text) <= MAX_VALUE_LENGTH else text[:MAX_VALUE_LENGTH] + "...")


def test_no_more_is_written_than_shown() -> None:
    class Number(int):
        written = 0

        def __repr__(self) -> str:
            Number.written += 1
            return "1"

    quote({"a": [[Number()] * 1000] * 1000, "b": [Number()] * 1000})
    assert Number.written <= MAX_VALUE_LENGTH


def test_what_is_nested_deeply() -> None:
    body = b"[" * 1023 + b"]" * 1023  # orjson reads no more
    assert error_of(body) == f"the body must be a JSON object. Given: {'[' * MAX_VALUE_LENGTH}..."
