"""A complete HTTP response, and its comparison with a recorded one."""

import difflib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

WRITE_VARIABLE = "LMI_WRITE_GOLDEN"  # environment variable that makes tests rewrite the transcripts
GOLDEN_FOLDER = "golden"


class Answer:
    """A complete HTTP response."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def content_type(self) -> str:
        return self.headers["Content-Type"]

    def json(self) -> Any:
        return orjson.loads(self.body)

    def json_lines(self) -> list[Any]:
        """Return the object in each line, all of which must end with a newline."""
        assert self.body.endswith(b"\n")
        return [orjson.loads(line) for line in self.body.splitlines()]

    def events(self, prefix: bytes) -> list[Any]:
        """Return the parsed server-sent events, each of which must have exactly this prefix."""
        assert self.body.endswith(b"\n\n")
        events = self.body.removesuffix(b"\n\n").split(b"\n\n")
        assert all(event.startswith(prefix) and b"\n" not in event for event in events)
        return [orjson.loads(event.removeprefix(prefix)) for event in events]


def compare(answer: Answer, folder: Path, name: str) -> None:
    """Fail the test unless the answer equals `golden/name.txt` in the folder; write the file on request."""
    path = folder / GOLDEN_FOLDER / f"{name}.txt"
    found = transcript(answer)
    if WRITE_VARIABLE in os.environ:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(found)
    if not path.is_file():
        pytest.fail(f"{path} is missing: run with {WRITE_VARIABLE}=1 to write it")
    if found != path.read_bytes():
        pytest.fail("\n".join(_difference(path, found)), pytrace=False)


def transcript(answer: Answer) -> bytes:
    """Return the answer's status, content type and body as one text."""
    return f"{answer.status}\n{answer.content_type}\n\n".encode() + answer.body


def _difference(path: Path, found: bytes) -> Iterator[str]:
    recorded, answered = (data.decode(errors="backslashreplace").splitlines() for data in (path.read_bytes(), found))
    return difflib.unified_diff(recorded, answered, str(path), "this answer", lineterm="")
