"""Dialects are registered by name and routes, and imported when a request needs them."""

import asyncio
import errno
import subprocess
import sys

import pytest

from lmi_core.plugins.loading import load_plugins
from lmi_core.plugins.registry import Lazy
from lmi_handlers.dialects import DIALECTS, SERVER_HANDLERS
from tests.conftest import SCRIPTED, ModelDirectory, Serve

REGISTERED = """\
import sys
from lmi_core.plugins.loading import load_plugins
handlers = load_plugins().handlers
print("lmi_handlers.anthropic.handler" in sys.modules, handlers.get("anthropic").__name__)
print("lmi_handlers.anthropic.handler" in sys.modules, "lmi_handlers.triton.handler" in sys.modules)
"""


def test_declarations_are_those_of_the_classes() -> None:
    handlers = load_plugins().handlers
    assert handlers.entries() == [*SERVER_HANDLERS, *DIALECTS]
    for declared in DIALECTS:
        handler = handlers.get(declared.name)
        assert handler.name == declared.name
        assert sorted(declared.routes) == sorted(f"{route.method} {route.path}" for route in handler.routes)
        assert all(route.is_for_clients and route.media_type is None for route in handler.routes)
    assert not any(isinstance(each, Lazy) for each in handlers.entries())


def test_a_dialect_that_is_not_used_is_not_imported() -> None:
    printed = subprocess.run([sys.executable, "-c", REGISTERED], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["False AnthropicHandler", "True False"]


async def test_an_import_that_fails_is_tried_again(
    serve: Serve, model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Descriptors or memory may be used up for a moment."""
    server = await serve(model_dir({"serving.properties": SCRIPTED}))

    def load(lazy: Lazy) -> type:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Lazy, "load", load)
        asked = [server.post("/generate", {"inputs": "hi"}) for _ in range(2)]
        assert [answer.status for answer in await asyncio.gather(*asked)] == [500, 500]
    assert (await server.post("/generate", {"inputs": "hi"})).status == 200
    assert "Too many open files" in caplog.text
