"""`lmi serve`: from a path to a running server."""

import asyncio
import gc
import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import uvloop

from lmi_core.configuration.configuration import Given
from lmi_core.configuration.model_directory import find_model_directories
from lmi_core.engines.logs import LOG_LEVEL_VARIABLE, configure_logging
from lmi_core.errors import ConfigurationError
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.serving.dispatcher import Dispatcher, check_names
from lmi_core.serving.model import Model
from lmi_core.serving.model_plan import ModelPlan, read_plan
from lmi_handlers.container.launch import Launch, read_launch
from lmi_handlers.container.search import Arguments, PlacedModel
from lmi_handlers.container.settings import for_models
from lmi_handlers.http.server import Listener, Server, serve

logger = logging.getLogger(__name__)

MOST_NEW_OBJECTS = 50_000  # new objects before a collection: reference counts free nearly all of a token's
EXAMPLE_BODY = '{"inputs": "What is Deep Learning?", "parameters": {"max_new_tokens": 64}}'
EMBEDDING_BODY = '{"inputs": "What is Deep Learning?"}'


def run(
    arguments: Arguments, plugins_directory: Path | None, drain_seconds: float, log_level: str, *, strict: bool = False
) -> None:
    """Serve until a signal. Raise ConfigurationError where a model cannot be served or, if `strict`, on a warning."""
    configure_logging(log_level)
    os.environ[LOG_LEVEL_VARIABLE] = log_level  # read by the workers
    plugins = load_plugins(plugins_directory)
    launch = read_launch(arguments, os.environ)
    for warning in launch.warnings:
        logger.warning("%s", warning)
    plans, errors = launch_plans(launch, os.environ, plugins)
    if errors:
        raise ConfigurationError("\n".join(errors))
    host, port = launch.address
    logger.info("the address: %s (%s), port %s (%s)", host.value, host.source, port.value, port.source)
    if launch.grpc_port is not None:
        check_grpc()
        logger.info("gRPC: port %s (%s)", launch.grpc_port.value, launch.grpc_port.source)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(plans, plugins, launch, drain_seconds, strict=strict))


def launch_plans(launch: Launch, environment: Mapping[str, str], plugins: Plugins) -> tuple[list[ModelPlan], list[str]]:
    """Return a plan for each model to serve, and why others have none. Raise ConfigurationError where names clash."""
    return _read_plans(launch.models, environment, plugins, launch.settings.for_models)


def read_plans(directory: Path, environment: Mapping[str, str], plugins: Plugins) -> list[ModelPlan]:
    """Return a plan for each model under the directory, whatever server settings the environment has.

    Raise ConfigurationError where one cannot be made.
    """
    found = find_model_directories(directory, environment)
    models = [PlacedModel(name, path, str(directory)) for name, path in found.items()]
    plans, errors = _read_plans(models, environment, plugins)
    if errors:
        raise ConfigurationError("\n".join(errors))
    return plans


def _read_plans(
    models: Sequence[PlacedModel], environment: Mapping[str, str], plugins: Plugins, common: Sequence[Given] = ()
) -> tuple[list[ModelPlan], list[str]]:
    plans, errors, variables = [], [], for_models(environment)
    for model in models:
        try:
            plan = read_plan(model.name, model.directory, variables, plugins, common, model.version, model.overrides)
            plans.append(plan)
        except ConfigurationError as error:
            errors.append(f"model {model.name}: {error.message}" if len(models) > 1 else error.message)
    if not errors:
        check_names(plans)
    return plans, errors


async def _serve(
    plans: list[ModelPlan], plugins: Plugins, launch: Launch, drain_seconds: float, *, strict: bool
) -> None:
    models = [Model(plan, plugins.formatters) for plan in plans]
    for model in models:
        _log(model)
    if strict:
        refuse_warnings([*launch.warnings, *(warning for model in models for warning in model.warnings)])
    server = create_server(Dispatcher({model.name: model for model in models}), plugins, launch)

    def on_ready() -> None:
        gc.collect()
        gc.freeze()  # spares the collector the hundreds of thousands of objects that engines load
        gc.set_threshold(MOST_NEW_OBJECTS)
        logger.info("%s", ready_message(server))

    try:
        await serve(server, drain_seconds, on_ready)
    finally:
        gc.unfreeze()  # frozen objects outlive the interpreter, which some libraries report as leaks


def create_server(dispatcher: Dispatcher, plugins: Plugins, launch: Launch) -> Server:
    """Return the server of the models, with gRPC where a port is given for it."""
    host, port = launch.address
    others: list[Listener] = []
    if launch.grpc_port is not None:
        from lmi_handlers.kserve_grpc.server import GrpcServer

        others.append(GrpcServer(dispatcher, host.value, int(launch.grpc_port.value)))
    return Server(dispatcher, plugins.handlers, host.value, int(port.value), others)


def check_grpc() -> None:
    """Raise ConfigurationError where the libraries that gRPC needs are not installed, or do not fit each other."""
    try:
        import lmi_handlers.kserve_grpc.server  # noqa: F401
    except (ImportError, RuntimeError, TypeError) as error:  # generated code raises the latter two
        raise ConfigurationError(
            f"gRPC needs other libraries: pip install 'lmi-handlers[grpc]'. Importing them said: {error}"
        ) from None


def ready_message(server: Server) -> str:
    """Return a line with the models, the URL, and a curl command to paste."""
    dispatcher = server.dispatcher
    first = sorted(dispatcher.models)[0]
    path = "/invocations" if dispatcher.only_model else f"/predictions/{quote(first)}"
    model = dispatcher.models[first]
    embeds = model.generates and not model.backend.generates
    command = f"curl {server.url}{path} -d {shlex.quote(EMBEDDING_BODY if embeds else EXAMPLE_BODY)}"
    also = "".join(f" and gRPC on {other.address}" for other in server.others)
    return f"Ready: {', '.join(sorted(dispatcher.models))} on {server.url}{also} -- try: {command}"


def refuse_warnings(warnings: Sequence[str]) -> None:
    """Raise ConfigurationError where there are warnings, for `--strict`."""
    if warnings:
        some = (
            f"the {len(warnings)} warnings above are errors" if len(warnings) > 1 else "the warning above is an error"
        )
        raise ConfigurationError(f"--strict: {some}")


def _log(model: Model) -> None:
    for warning in model.warnings:
        logger.warning("model %s: %s", model.name, warning)
    logger.info("model %s: %s", model.name, model.plan.served_by)
