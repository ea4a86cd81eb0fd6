from typing import Any

import pytest

from lmi_core.script.formatters.frames import WrongResult, change_frames, encode, frame


def mark(data: dict[str, Any]) -> dict[str, Any]:
    return data | {"x": 1}


@pytest.mark.parametrize(
    ("data", "content_type", "changed"),
    [
        (b'{"a":1}', "application/json", b'{"a":1,"x":1}'),
        (b'[{"a":1},{}]', "application/json; charset=utf-8", b'[{"a":1,"x":1},{"x":1}]'),
        (b'{"a":1}\n{}\n', "application/jsonlines", b'{"a":1,"x":1}\n{"x":1}\n'),
        (b'data: {"a":1}\n\n', "text/event-stream", b'data: {"a":1,"x":1}\n\n'),
        (b'data:{"a":1}\n\ndata: [DONE]\n\n', "text/event-stream", b'data:{"a":1,"x":1}\n\ndata: [DONE]\n\n'),
        (b'data: {"a":"data: {"}\n\n', "text/event-stream", b'data: {"a":"data: {","x":1}\n\n'),
        (b'event: e\ndata: {"a":1}\n\n: ping\n\n', "text/event-stream", b'event: e\ndata: {"a":1,"x":1}\n\n: ping\n\n'),
    ],
)
def test_objects_are_changed_where_they_are(data: bytes, content_type: str, changed: bytes) -> None:
    assert change_frames(data, content_type, mark) == changed


@pytest.mark.parametrize(
    ("result", "lines", "events"),
    [
        ("text", b"text\n", b"data: text\n\n"),
        (b"text\n", b"text\n", b"data: text\n\n\n"),
        ("data: own\n\n", b"data: own\n\n", b"data: own\n\n"),
        (None, b"", b""),
    ],
)
def test_results_that_are_no_objects(result: Any, lines: bytes, events: bytes) -> None:
    assert change_frames(b"{}\n", "application/jsonlines", lambda _: result) == lines
    assert change_frames(b"data: {}\n\n", "text/event-stream", lambda _: result) == events


@pytest.mark.parametrize(("result", "type_name"), [(None, "NoneType"), (7, "int"), ({1}, "set")])
@pytest.mark.parametrize("answer", [b"{}", b"[{}]"])
def test_whole_answer_must_be_something(answer: bytes, result: Any, type_name: str) -> None:
    with pytest.raises(WrongResult, match=f"^{type_name}"):
        change_frames(answer, "application/json", lambda _: result)


def test_encode() -> None:
    assert (encode("ü"), encode(b"\x00"), encode({1: [None]})) == ("ü".encode(), b"\x00", b'{"1":[null]}')


@pytest.mark.parametrize(
    ("content_type", "data"),
    [("application/json", b"{}"), ("application/jsonlines", b"{}\n"), ("text/event-stream", b"data: {}\n\n")],
)
def test_frame(content_type: str, data: bytes) -> None:
    assert frame({}, content_type) == data
