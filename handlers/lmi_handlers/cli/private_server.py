"""A private server of one model, for `lmi generate`, `lmi chat`, `lmi try` and use from Python."""

import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import aiohttp
from aiohttp import web

from lmi_core.backend import BackendSetup
from lmi_core.errors import ConfigurationError
from lmi_core.logs.logs import LOG_LEVEL_VARIABLE, configure_logging, flush_log
from lmi_core.logs.progress_display import show_on_terminal
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.serving.model import Model
from lmi_core.serving.model_plan import ModelPlan
from lmi_handlers.cli.plans import launch_plans, refuse_warnings
from lmi_handlers.container.declarations import COMMAND_LINE
from lmi_handlers.container.launch import read_launch
from lmi_handlers.container.search import Arguments
from lmi_handlers.http.application import create_application

SCRIPTED = "scripted"
DEFAULT_PROMPT = "What is Deep Learning?"
DELAY = 0.01  # seconds between tokens, so that each is a separate chunk


def scripted_plan(plan: ModelPlan, plugins: Plugins, text: str | None) -> ModelPlan:
    """Return the plan with the scripted backend, which answers with the text; plans with a model function stay
    unchanged.
    """
    if plan.backend is None or (plan.backend.name == SCRIPTED and text is None):
        return plan
    backend = plugins.backends.get(SCRIPTED)
    properties = backend.properties_type.model_validate(
        {"scripted_delay": DELAY} | ({} if text is None else {"scripted_text": text})
    )
    return replace(plan, backend=backend, setup=BackendSetup(plan.directory, properties, {}, 0))


def prompt_body(route: str, prompt: str) -> dict[str, object]:
    """Return the request body for the prompt in the schema of the route."""
    if "chat" in route:
        return {"messages": [{"role": "user", "content": prompt}]}
    if route.startswith("/v1/"):
        return {"prompt": prompt}
    return {"text_input" if route.startswith("/v2/") else "inputs": prompt}


@asynccontextmanager
async def own_server(plan: ModelPlan, plugins: Plugins) -> AsyncIterator[tuple[aiohttp.ClientSession, Dispatcher]]:
    """Serve one model privately, on a Unix socket, and yield a client and the server's dispatcher."""
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
        with show_on_terminal({model.name: model.progress}):
            await dispatcher.start()
        flush_log()  # the progress line is gone before anything else is printed
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.UnixConnector(socket)
        client = aiohttp.ClientSession("http://lmi", connector=connector, timeout=timeout)
        yield await stack.enter_async_context(client), dispatcher


class OnePlan(NamedTuple):
    """The plan for one model, its plugins, and the warnings of `lmi check`."""

    plan: ModelPlan
    plugins: Plugins
    warnings: list[str]


def plan_of_command(
    target: str, options: tuple[str, ...], plugins_directory: Path | None, *, strict: bool = False
) -> OnePlan:
    """Return the plan for a command that serves a model privately, print its warnings to stderr, and log no more.

    Raise ConfigurationError like `one_plan` and, if `strict`, on a warning.
    """
    configure_logging("warning")
    os.environ.setdefault(LOG_LEVEL_VARIABLE, "warning")  # read by the workers
    only = one_plan(target, options, plugins_directory)
    if strict:
        refuse_warnings(only.warnings)
    for warning in only.warnings:
        print(f"lmi: warning: {warning}", file=sys.stderr)
    return only


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
    try:
        warnings = Model(plans[0], plugins.formatters).warnings
    except ConfigurationError:  # the model is not on this host
        warnings = plans[0].warnings
    return OnePlan(plans[0], plugins, [*launch.warnings, *warnings])
