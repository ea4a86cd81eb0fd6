"""`lmi serve`: from a path to a running server."""

import asyncio
import gc
import logging
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import uvloop

from lmi_core.dispatcher import Dispatcher, check_names
from lmi_core.errors import ConfigurationError
from lmi_core.logs import LOG_LEVEL_VARIABLE, configure_logging
from lmi_core.model import Model, ModelPlan, read_plan
from lmi_core.model_directory import find_model_directories
from lmi_core.plugins import Plugins, load_plugins
from lmi_handlers.server import Server, serve

logger = logging.getLogger(__name__)

MOST_NEW_OBJECTS = 50_000  # before they are looked through: nearly all are gone by themselves, token by token
EXAMPLE_BODY = '{"inputs": "What is Deep Learning?", "parameters": {"max_new_tokens": 64}}'


def run(
    directory: Path, host: str, port: int, plugins_directory: Path | None, drain_seconds: float, log_level: str
) -> None:
    """Serve until a signal. Raises ConfigurationError."""
    configure_logging(log_level)
    os.environ[LOG_LEVEL_VARIABLE] = log_level  # for the workers
    plugins = load_plugins(plugins_directory)
    plans = read_plans(directory, os.environ, plugins)
    for plan in plans:
        _log(plan)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(plans, plugins, host, port, drain_seconds))


def read_plans(directory: Path, environment: Mapping[str, str], plugins: Plugins) -> list[ModelPlan]:
    """One for each model under the directory. Raises ConfigurationError."""
    found = find_model_directories(directory, environment)
    several = len(found) > 1
    plans = [_read_plan(name, path, environment, plugins, several=several) for name, path in found.items()]
    check_names(plans)
    return plans


def _read_plan(
    name: str, directory: Path, environment: Mapping[str, str], plugins: Plugins, *, several: bool
) -> ModelPlan:
    try:
        return read_plan(name, directory, environment, plugins)
    except ConfigurationError as error:
        if not several:
            raise
        raise ConfigurationError(f"model {name}: {error.message}") from error


async def _serve(plans: list[ModelPlan], plugins: Plugins, host: str, port: int, drain_seconds: float) -> None:
    dispatcher = Dispatcher({plan.name: Model(plan, plugins) for plan in plans})
    server = Server(dispatcher, plugins, host, port)

    def on_ready() -> None:
        gc.collect()
        gc.freeze()  # engines load hundreds of thousands of objects: none of them is to be looked through again
        gc.set_threshold(MOST_NEW_OBJECTS)
        logger.info("%s", ready_message(server))

    try:
        await serve(server, drain_seconds, on_ready)
    finally:
        gc.unfreeze()  # frozen, they would outlive the interpreter, of which some libraries complain


def ready_message(server: Server) -> str:
    """One line: the URL, and a command that works when pasted."""
    dispatcher = server.dispatcher
    path = "/invocations" if dispatcher.only_model else f"/predictions/{quote(sorted(dispatcher.models)[0])}"
    command = f"curl {server.url}{path} -d {shlex.quote(EXAMPLE_BODY)}"
    return f"Ready: {', '.join(sorted(dispatcher.models))} on {server.url} -- try: {command}"


def _log(plan: ModelPlan) -> None:
    for warning in [*plan.configuration.warnings, *plan.code.warnings()]:
        logger.warning("model %s: %s", plan.name, warning)
    logger.info("model %s: backend %s (%s)", plan.name, plan.backend.name, plan.backend_reason)
