"""Metrics cost something for each request, and nothing for each of its tokens."""

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

ROOMS = ("lmi_core/metrics/", "lmi_handlers/telemetry/", "lmi_handlers/metrics/")
CALLS_PER_REQUEST = 60


@pytest.fixture
async def server(model_dir: ModelDirectory, serve: Serve) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + "option.scripted_text=" + "one " * 500 + "\n"}))


async def calls(server: RunningServer, tokens: int) -> Counter[str]:
    """Return the calls of Python functions of the rooms for one stream of so many tokens."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and any(room in frame.f_code.co_filename for room in ROOMS):
            found[frame.f_code.co_qualname] += 1

    body: dict[str, Any] = {"inputs": "a", "stream": True, "parameters": {"max_new_tokens": tokens}}
    sys.setprofile(note)
    try:
        answer = await server.post("/invocations", body)
    finally:
        sys.setprofile(None)
    assert len(answer.json_lines()) == tokens
    return found


async def test_as_many_calls_for_a_long_answer_as_for_a_short_one(server: RunningServer) -> None:
    await calls(server, 2)
    short, long = await calls(server, 5), await calls(server, 400)
    assert short == long
    assert 5 < sum(short.values()) < CALLS_PER_REQUEST
