"""Messages as botocore reads them."""

from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer

from lmi_core.errors import GenerationFailed, GenerationTimeout, LmiError
from lmi_handlers.lmi import sagemaker
from lmi_handlers.lmi.sagemaker import EventStream


def read(data: bytes) -> list[Any]:
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return list(buffer)


def test_message() -> None:
    (found,) = read(sagemaker.message({":name": "välue", ":other": ""}, b"\x00payload"))
    assert (found.headers, found.payload) == ({":name": "välue", ":other": ""}, b"\x00payload")


def test_each_write_is_a_payload_part() -> None:
    frame = EventStream().frame
    parts = read(frame(b'{"a": 1}\n') + frame(b"") + frame(b'{"b": 2}\n'))
    assert [part.payload for part in parts] == [b'{"a": 1}\n', b'{"b": 2}\n']
    assert {part.headers[":event-type"] for part in parts} == {"PayloadPart"}


def test_a_write_that_is_too_long_for_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sagemaker, "MAX_PAYLOAD", 3)
    assert [part.payload for part in read(EventStream().frame(b"1234567"))] == [b"123", b"456", b"7"]


@pytest.mark.parametrize(
    ("error", "name", "payload"),
    [
        (GenerationFailed("it fell"), "InternalStreamFailure", b'{"Message":"it fell"}'),
        (
            GenerationTimeout("too late"),
            "ModelStreamError",
            b'{"Message":"too late","ErrorCode":"ModelInvocationTimeExceeded"}',
        ),
    ],
)
def test_failure(error: LmiError, name: str, payload: bytes) -> None:
    (found,) = read(EventStream().failure(error))
    assert (found.headers[":message-type"], found.headers[":exception-type"]) == ("exception", name)
    assert found.payload == payload
