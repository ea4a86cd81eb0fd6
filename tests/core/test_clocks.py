"""Deadlines are kept by clocks that nobody sets; the host's clock only dates what clients are shown."""

import ast
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, Serve

ROOT = Path(__file__).parents[2]
# What dates an answer or a model, and sessions of model functions, which outlive the server's process.
DATES = {
    "core/lmi_core/texts/template_environment.py",  # `strftime_now` of chat templates
    "core/lmi_core/registry/registered_model.py",
    "handlers/djl_python/session_manager.py",
    "handlers/lmi_handlers/access/certificate.py",
    "core/lmi_core/script/formatters/output_formatters.py",
    "core/lmi_core/metrics/model_metrics.py",
    "core/lmi_core/serving/model.py",
    "core/lmi_core/calls/sessions.py",
    "handlers/lmi_handlers/chat/schema.py",
    "handlers/lmi_handlers/console/handler.py",
    "handlers/lmi_handlers/management/handler.py",
    "handlers/lmi_handlers/ollama/models.py",
    "handlers/lmi_handlers/ollama/formatters.py",
    "handlers/lmi_handlers/completions/formatters.py",
    "handlers/lmi_handlers/openai/embeddings.py",
    "handlers/lmi_handlers/openai/rerank.py",
    "handlers/lmi_handlers/responses/response.py",
    "handlers/lmi_handlers/telemetry/request_end.py",
    "handlers/lmi_handlers/telemetry/tracing.py",
}
CLOCKS = ("time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.datetime.now")
YEAR = 365 * 24 * 3600


def reads_the_clock(tree: ast.Module) -> bool:
    return any(name in CLOCKS for node in ast.walk(tree) for name in names(node))


def names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        yield ast.unparse(node)
    elif isinstance(node, ast.ImportFrom):
        yield from [f"{node.module}.{name.name}" for name in node.names]


def test_who_reads_the_clock() -> None:
    paths = [path for tree in ("core", "handlers", "plugins") for path in (ROOT / tree).rglob("*.py")]
    readers = {str(path.relative_to(ROOT)) for path in paths if reads_the_clock(ast.parse(path.read_text()))}
    assert readers == DATES


@pytest.mark.parametrize("jump", [YEAR, -YEAR])
async def test_the_clock_is_set(
    serve: Serve, model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """Streams, sessions and idle connections stay as they are."""
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    begun = await server.post("/invocations", {"requestType": "NEW_SESSION"})
    session = {"X-Amzn-SageMaker-Session-Id": begun.headers["X-Amzn-SageMaker-New-Session-Id"].partition(";")[0]}
    server.scripted.enqueue(Script("one two three"))
    pieces = server.pieces("/invocations", {"inputs": "hi", "stream": True})
    received = await anext(pieces)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    monkeypatch.setattr("lmi_core.calls.sessions.time", lambda: real() + jump)
    received += b"".join([piece async for piece in pieces])
    assert b"three" in received
    assert b"error" not in received
    assert (await server.post("/invocations", {"inputs": "hi"}, headers=session)).status == 200
    assert (await server.get("/ping")).status == 200
