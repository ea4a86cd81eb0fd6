"""Helpers to serve and query model.py files."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.conftest import Answer, RunningServer

SCRIPTS = Path(__file__).parents[3] / "model_scripts"
TEXT = "Deep Learning is a really cool field."
WORDS = ["Deep", " Learning", " is", " a", " really", " cool", " field."]
BODY = {"inputs": "What is it?"}
STREAM = BODY | {"stream": True}
CHAT = {"messages": [{"role": "user", "content": "What is it?"}]}

ServeScript = Callable[..., Awaitable[RunningServer]]


async def both(server: RunningServer, body: dict[str, Any] = BODY) -> tuple[Answer, Answer]:
    """Return the whole answer and the streamed one to the same body."""
    whole, stream = [await server.post("/invocations", body | {"stream": stream}) for stream in (False, True)]
    assert (whole.status, stream.status) == (200, 200)
    return whole, stream
