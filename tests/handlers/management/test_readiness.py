"""The readiness of a server whose models come and go."""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from lmi_core.backend import Backend
from lmi_core.hookspecs import hookimpl
from lmi_handlers.access.options import AccessOptions
from lmi_handlers.testing import running_server
from lmi_plugins.backends.scripted import ScriptedBackend
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer
from tests.handlers.management.asking import ask, register

PATHS = ("/readiness", "/ping", "/health", "/v2/health/ready")


class GatedBackend(ScriptedBackend):
    """A backend that loads once its gate is open."""

    name = "gated"
    gate: ClassVar[asyncio.Event]

    async def start(self) -> None:
        await self.gate.wait()


class GatedPlugin:
    @hookimpl
    def lmi_register_backends(self, register: Callable[[type[Backend[Any]]], None]) -> None:
        register(GatedBackend)


async def statuses(server: RunningServer) -> list[int]:
    return [(await server.get(path)).status for path in PATHS]


@pytest.mark.parametrize("multi_model", [False, True])
async def test_only_model_comes_and_goes(model_dir: ModelDirectory, multi_model: bool) -> None:
    GatedBackend.gate = asyncio.Event()
    gated = model_dir({"serving.properties": "option.rolling_batch=gated\n"}, "gated")
    first = model_dir({"serving.properties": SCRIPTED}, "first")
    access = AccessOptions(multi_model=multi_model)
    async with asyncio.timeout(60), running_server(first, plugins=[GatedPlugin()], access=access) as server:
        assert (await ask(server, "DELETE", "/models/first")).status == 200
        assert await statuses(server) == [200, 200, 200, 200]  # none is registered
        assert (await register(server, gated, synchronous=False)).status == 202
        loading = server.dispatcher.registry.find_registered("gated").loading
        assert loading is not None
        assert await statuses(server) == [503, 200 if multi_model else 503, 503, 503]
        if not multi_model:
            assert (await server.get("/ping")).json()["error"].startswith("model gated is loading")
        GatedBackend.gate.set()
        await asyncio.wait([loading])
        assert await statuses(server) == [200, 200, 200, 200]
