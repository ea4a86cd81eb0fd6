"""The server for `lmi generate`, `lmi chat` and `lmi try`: a running one, or a private one."""

import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import aiohttp
from aiohttp import web

from lmi_core import tolerance
from lmi_core.errors import ConfigurationError
from lmi_core.logs.logs import LOG_LEVEL_VARIABLE, configure_logging
from lmi_core.logs.progress_display import shown_on_terminal
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.serving.model import Model
from lmi_core.serving.model_plan import ModelPlan
from lmi_handlers.cli.serving import launch_plans, refuse_warnings
from lmi_handlers.container.declarations import COMMAND_LINE
from lmi_handlers.container.launch import read_launch
from lmi_handlers.container.search import Arguments
from lmi_handlers.http.application import create_application

API_KEYS = ("LMI_API_KEY", "OPENAI_API_KEY")  # environment variables: the first has the key for a server elsewhere

_URL = re.compile(r"https?://", re.I)
_ADDRESS = re.compile(r"(localhost|[\w.-]*\.[\w.-]+|\[[\da-f:.]+\]):\d{1,5}(/.*)?", re.I)


@asynccontextmanager
async def own_server(plan: ModelPlan, plugins: Plugins) -> AsyncIterator[aiohttp.ClientSession]:
    """Serve one model privately, on a Unix socket, and yield a client."""
    model = Model(plan, plugins.formatters)
    dispatcher = Dispatcher({plan.name: model})
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lmi-"))
        socket = str(Path(folder) / "socket")
        runner = web.AppRunner(
            create_application(dispatcher, plugins.handlers),
            access_log=None,
            auto_decompress=False,
            handler_cancellation=True,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        stack.push_async_callback(dispatcher.stop)
        await web.UnixSite(runner, socket).start()
        with shown_on_terminal({model.name: model.progress}):
            await dispatcher.start()
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.UnixConnector(socket)
        yield await stack.enter_async_context(aiohttp.ClientSession("http://lmi", connector=connector, timeout=timeout))


@dataclass(frozen=True)
class Connection:
    """The target of requests: the server at a URL, or a private one for a model directory or a hub id."""

    target: str
    options: tuple[str, ...] = ()
    plugins_directory: Path | None = None
    strict: bool = False  # whether warnings about the model directory are errors
    api_key_variable: str | None = None  # the environment variable with the key of the server at a URL

    @property
    def is_elsewhere(self) -> bool:
        return _URL.match(self.target) is not None


@asynccontextmanager
async def connect(to: Connection) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a client of the server.

    Raise ConfigurationError if the model cannot be served or, if `strict`, on a warning; otherwise print warnings to
    stderr.
    """
    if to.is_elsewhere:
        if to.options or to.strict:
            given = "-o" if to.options else "--strict"
            raise ConfigurationError(f"{given} is for models that this command serves itself, not for {to.target}")
        async with _client_of(to.target, _api_key(to.api_key_variable)) as client:
            yield client
        return
    if _ADDRESS.fullmatch(to.target) and not Path(to.target).exists():
        raise ConfigurationError(f"{to.target} does not exist: for the server at that address, give http://{to.target}")
    if to.api_key_variable is not None:
        raise ConfigurationError(f"--api-key-env is for a server at a URL, not for {to.target}")
    configure_logging("warning")
    tolerance.logger.disabled = True  # whoever sends requests here tells what is ignored
    os.environ.setdefault(LOG_LEVEL_VARIABLE, "warning")  # read by the workers
    only = one_plan(to.target, to.options, to.plugins_directory)
    if to.strict:
        refuse_warnings(only.warnings)
    for warning in only.warnings:
        print(f"lmi: warning: {warning}", file=sys.stderr)
    async with own_server(only.plan, only.plugins) as client:
        yield client


class OnePlan(NamedTuple):
    """The plan for one model, its plugins, and the warnings of `lmi check`."""

    plan: ModelPlan
    plugins: Plugins
    warnings: list[str]


def one_plan(
    target: str, options: tuple[str, ...] = (), plugins_directory: Path | None = None, source: str = COMMAND_LINE
) -> OnePlan:
    """Return the plan of `lmi serve` for the only model of a directory or a hub id.

    `source` is the origin of the options, for messages. Raise ConfigurationError with every problem.
    """
    plugins = load_plugins(plugins_directory)
    arguments = Arguments((target,), options=options, options_source=source, plugins_directory=plugins_directory)
    launch = read_launch(arguments, os.environ)
    plans, errors = launch_plans(launch, os.environ, plugins)
    if errors:
        raise ConfigurationError("\n".join(errors))
    if len(plans) > 1:
        raise ConfigurationError(f"{target} contains several models: give the directory of one")
    return OnePlan(plans[0], plugins, [*launch.warnings, *_warnings(plans[0], plugins)])


def _warnings(plan: ModelPlan, plugins: Plugins) -> list[str]:
    """Return the warnings of the model; only those of its plan if the model is not on this host."""
    try:
        return Model(plan, plugins.formatters).warnings
    except ConfigurationError:
        return plan.warnings


def _api_key(variable: str | None) -> str | None:
    """Return the API key in the environment, if any. Raise ConfigurationError if a named variable is missing."""
    names = API_KEYS if variable is None else (variable,)
    name = next((each for each in names if os.environ.get(each, "").strip()), None)
    if name is None:
        if variable is not None:
            raise ConfigurationError(f"--api-key-env: the environment variable {variable} is not set, or empty")
        return None
    key = os.environ[name].strip()
    if not (key.isascii() and key.isprintable()):  # the message shows the name, never the key
        raise ConfigurationError(f"the API key in {name} must consist of printable ASCII characters")
    return key


def _client_of(url: str, key: str | None) -> aiohttp.ClientSession:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    base = url.rstrip("/").removesuffix("/v1") + "/"  # clients of OpenAI's are given the address with its version
    return aiohttp.ClientSession(base, headers=headers, timeout=aiohttp.ClientTimeout(total=None))
