"""The server that `lmi generate`, `lmi chat` and `lmi try` send requests to: one elsewhere, or one of their own."""

import os
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from lmi_core.engines.logs import LOG_LEVEL_VARIABLE, configure_logging
from lmi_core.errors import ConfigurationError
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.serving.dispatcher import Dispatcher
from lmi_core.serving.model import Model
from lmi_core.serving.model_plan import ModelPlan
from lmi_handlers.cli.serving import launch_plans
from lmi_handlers.container.launch import read_launch
from lmi_handlers.container.search import Arguments
from lmi_handlers.http.application import create_application

API_KEY = "OPENAI_API_KEY"  # environment variable: the key for a server elsewhere

_URL = re.compile(r"https?://", re.I)


@asynccontextmanager
async def own_server(plan: ModelPlan, plugins: Plugins) -> AsyncIterator[aiohttp.ClientSession]:
    """Serve one model to nobody else, on a Unix socket, and yield a client of it."""
    dispatcher = Dispatcher({plan.name: Model(plan, plugins.formatters)})
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lmi-"))
        socket = str(Path(folder) / "socket")
        runner = web.AppRunner(
            create_application(dispatcher, plugins.handlers), access_log=None, handler_cancellation=True
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        stack.push_async_callback(dispatcher.stop)
        await web.UnixSite(runner, socket).start()
        await dispatcher.start()
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.UnixConnector(socket)
        yield await stack.enter_async_context(aiohttp.ClientSession("http://lmi", connector=connector, timeout=timeout))


@asynccontextmanager
async def connect(
    target: str, options: tuple[str, ...] = (), plugins_directory: Path | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a client of the server at a URL, or of one of our own for a model directory or a hub id.

    Raise ConfigurationError where the model cannot be served.
    """
    if _URL.match(target):
        if options:
            raise ConfigurationError(f"-o is for models that this command serves itself, not for {target}")
        async with _client_of(target) as client:
            yield client
        return
    configure_logging("warning")
    os.environ.setdefault(LOG_LEVEL_VARIABLE, "warning")  # read by the workers
    plugins = load_plugins(plugins_directory)
    plans, errors = launch_plans(read_launch(Arguments((target,), options=options), os.environ), os.environ, plugins)
    if errors:
        raise ConfigurationError("\n".join(errors))
    if len(plans) > 1:
        raise ConfigurationError(f"{target} contains several models: give the directory of one")
    async with own_server(plans[0], plugins) as client:
        yield client


def _client_of(url: str) -> aiohttp.ClientSession:
    key = os.environ.get(API_KEY)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    base = url.rstrip("/").removesuffix("/v1") + "/"  # clients of OpenAI's are given the address with its version
    return aiohttp.ClientSession(base, headers=headers, timeout=aiohttp.ClientTimeout(total=None))
