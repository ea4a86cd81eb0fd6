"""`lmi serve`: from a path to a running server."""

import asyncio
import gc
import logging
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from lmi_core.configuration.location import must_be_copied
from lmi_core.embedding_backend import is_reranker
from lmi_core.errors import ConfigurationError
from lmi_core.host.memory import return_large_blocks
from lmi_core.plugins.early_workers import end_unwanted
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.registry.memory_planner import Need
from lmi_core.remote.fetching import local_directory
from lmi_core.remote.held_copies import release_copy
from lmi_core.serving.model import Model
from lmi_core.serving.model_plan import ModelPlan
from lmi_core.serving.own_code import code_that_runs
from lmi_core.workers.ray_actor import LOCAL
from lmi_handlers.access.control import AccessControl
from lmi_handlers.cli.plans import launch_plans, notes_of, refuse_warnings, warnings_of
from lmi_handlers.cli.starting import announce
from lmi_handlers.container.launch import Launch, read_launch
from lmi_handlers.container.search import Arguments
from lmi_handlers.container.settings import for_models
from lmi_handlers.http.connections.limits import raise_descriptor_limit
from lmi_handlers.http.server import PAGES, Listener, Server, serve
from lmi_handlers.management.reader import DirectoryReader
from lmi_handlers.metrics.handler import write_metrics
from lmi_handlers.process.blocked_loop import blocked_loop_warnings
from lmi_handlers.process.front import UNCHANGEABLE, this_front
from lmi_handlers.process.lifetime import ending_signals
from lmi_handlers.process.signals import Signals

if TYPE_CHECKING:
    from lmi_handlers.telemetry.tracing import RequestTracer

logger = logging.getLogger(__name__)

SWITCH_SECONDS = 0.0005  # per turn of a busy thread; the event loop and the threads beside it wait for several turns
# New objects before a garbage collection: reference counting frees nearly all objects of a token
MAX_NEW_OBJECTS = 50_000
EXAMPLE_BODY = '{"inputs": "What is Deep Learning?", "parameters": {"max_new_tokens": 64}}'
METRICS = "metrics"  # the handler of Prometheus routes
GRPC_SHARE = 4  # gRPC gets a quarter of the connections, because each carries many calls
CLOSE_SECONDS = 5.0  # to send the last spans to a collector, which may not accept them
PAIR_BODY = '{"text": "What is Deep Learning?", "text_pair": "A field of machine learning."}'
EMBEDDING_BODY = '{"inputs": "What is Deep Learning?"}'


def report_ready(server: Server, level: str = "info") -> None:
    """Report that the models are loaded, and log at this level from now on; in a front end, the parent does this."""
    if (front := this_front()) is not None:
        front.announce(server.port, [ready_message(server), *addresses(server)])
    else:
        announce(logger, ready_message(server), addresses(server), level)


def run(
    runner: asyncio.Runner,
    arguments: Arguments,
    drain_seconds: float,
    *,
    strict: bool = False,
    welcome: Callable[[Server], None] = report_ready,
) -> None:
    """Serve until a signal, and call `welcome` in the event loop once the models are loaded.

    Raise ConfigurationError if a model cannot be served or, if `strict`, on a warning. Threads that still import
    libraries are left running, because the process is about to exit.
    """
    plugins = load_plugins(arguments.plugins_directory)
    fetched: list[Path] = []
    launch = read_launch(arguments, os.environ, fetch=partial(_fetch, fetched))
    # With `strict`, they are errors, reported with those of the models
    for warning in () if strict else launch.warnings:
        logger.warning("%s", warning)
    plans, errors = launch_plans(launch, os.environ, plugins)
    if errors:
        raise ConfigurationError("\n".join(errors))
    front = this_front()
    if front is not None:
        check_sharing(plans)
    runner.run(end_unwanted([plan.runtime.name for plan in plans if plan.setup.ray_address is None]))
    host, port = launch.address
    logger.info("the address: %s (%s), port %s (%s)", host.value, host.source, port.value, port.source)
    if launch.grpc_port is not None:
        check_grpc()
        logger.info("gRPC: port %s (%s)", launch.grpc_port.value, launch.grpc_port.source)
    if plugins.others:
        logger.info("plugins, whose code runs in the server: %s", ", ".join(plugins.others))
    for line in (*notes_of(launch), *plugins.handlers.replacements()):
        logger.warning("%s", line)
    if (too_few := raise_descriptor_limit(launch.limits.max_connections)) is not None:
        logger.warning("%s", too_few)
    runner.run(_serve(plans, plugins, launch, drain_seconds, welcome, fetched, strict=strict))


def check_sharing(plans: Sequence[ModelPlan]) -> None:
    """Raise ConfigurationError for models whose engines front ends cannot share or divide, or if there is no model."""
    if not plans:
        raise ConfigurationError("--servers needs a model: front ends cannot load one later")
    for plan in plans:
        if plan.backend is None or not (plan.backend.shares_engines or plan.backend.divides_engines):
            raise ConfigurationError(
                "--servers works with the backends torch and trtllm, whose engines front ends can share, and with vllm "
                f"and lmi-dist; {plan.name} is {plan.served_by}"
            )
        cluster = plan.setup.ray_address if plan.backend.runs_on_ray else None
        works = plan.setup.ray_shared or (plan.backend.divides_engines and cluster != LOCAL)
        if cluster is not None and not works:
            how = "" if plan.backend.divides_engines else "with ray_shared=true "
            raise ConfigurationError(
                f"--servers works with {plan.backend.name} on this host, or {how}on a cluster that is not `local`"
            )


def _fetch(fetched: list[Path], source: str) -> Path:
    """Return the folder of a path or a URL, and keep a note of held copies."""
    folder = local_directory(source)
    if must_be_copied(source):
        fetched.append(folder)
    return folder


async def _serve(
    plans: list[ModelPlan],
    plugins: Plugins,
    launch: Launch,
    drain_seconds: float,
    welcome: Callable[[Server], None],
    fetched: Sequence[Path] = (),
    *,
    strict: bool,
) -> None:
    return_large_blocks()
    sys.setswitchinterval(SWITCH_SECONDS)
    signals = Signals(ending_signals())
    models = [Model(plan, plugins.formatters) for plan in plans]
    for folder in fetched:
        release_copy(folder)  # each model keeps the files that it uses
    if strict:
        refuse_warnings(warnings_of(models, launch))
    for model in models:
        _log_choices(model)
    reader = DirectoryReader(plugins, for_models(os.environ), launch.settings.for_models, launch.options)
    dispatcher = Dispatcher({model.names[-1]: model for model in models}, reader)
    dispatcher.registry.drain_seconds = drain_seconds
    planner = dispatcher.registry.memory_planner
    planner.evicts = launch.evicts_models
    front = this_front()
    if front is not None and front.joins:
        planner.free = unknown_memory
    server = create_server(dispatcher, plugins, launch)
    tracer = _tracer(launch)
    if tracer is not None:
        dispatcher.metrics.observers.append(tracer.write)

    def on_ready() -> None:
        if front is not None:
            planner.free = unknown_memory
        gc.enable()
        gc.collect()
        gc.freeze()  # garbage collections then skip the hundreds of thousands of objects loaded by engines
        gc.set_threshold(MAX_NEW_OBJECTS)
        welcome(server)

    try:
        async with front_end_metrics(dispatcher), blocked_loop_warnings():
            await serve(server, drain_seconds, on_ready, signals)
    finally:
        if tracer is not None:
            with suppress(TimeoutError):  # the collector of traces does not respond
                await asyncio.wait_for(asyncio.to_thread(tracer.close), CLOSE_SECONDS)
        gc.unfreeze()  # frozen objects would outlive the interpreter, which some libraries report as leaks


def _log_choices(model: Model) -> None:
    for warning in model.warnings:
        logger.warning("model %s: %s", model.name, warning)
    logger.info("model %s: %s", model.name, model.plan.served_by)
    logger.info("model %s runs this code: %s", model.name, code_that_runs(model.plan))


def unknown_memory(need: Need) -> int | None:
    """Return None, because the engines of a front end may already be loaded for other front ends."""
    return None


@asynccontextmanager
async def front_end_metrics(dispatcher: Dispatcher) -> AsyncIterator[None]:
    """Let other front ends read this one's metrics, if there are any."""
    if (front := this_front()) is None:
        yield
        return
    from lmi_handlers.metrics.front_ends import FrontEndMetrics

    own = FrontEndMetrics(front, partial(write_metrics, dispatcher))
    await own.listen()
    try:
        yield
    finally:
        own.stop()


def create_server(dispatcher: Dispatcher, plugins: Plugins, launch: Launch) -> Server:
    """Return the server of the models, with gRPC if a port is given for it."""
    host, port = launch.address
    front = this_front()
    access = AccessControl(dispatcher, replace(launch.access, fixed=None if front is None else UNCHANGEABLE))
    others: list[Listener] = []
    limits = launch.limits
    if launch.grpc_port is not None and (front is None or front.is_main):
        from lmi_handlers.kserve_grpc.server import GrpcServer

        of_grpc, limits = limits.split(GRPC_SHARE)
        others.append(GrpcServer(dispatcher, host.value, int(launch.grpc_port.value), access, of_grpc))
    off = [name for name, is_on in ((PAGES, launch.pages), (METRICS, launch.metrics)) if not is_on]
    handlers = plugins.handlers.without(*off)
    number = int(port.value) if front is None or front.port is None else front.port
    return Server(dispatcher, handlers, host.value, number, others, limits, access, front)


def _tracer(launch: Launch) -> "RequestTracer | None":
    """Return the writer of spans, or None if they are off. Raise ConfigurationError without its libraries."""
    endpoint = launch.settings.get("otlp_traces_endpoint")
    if endpoint is None:
        return None
    if not endpoint.value.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"{endpoint.source} must be the http(s):// URL of a collector. Given: {endpoint.value}"
        )
    try:
        from lmi_handlers.telemetry.tracing import RequestTracer

        return RequestTracer.to(endpoint.value)
    except ImportError as error:
        raise ConfigurationError(
            f"{endpoint.source} needs other libraries: pip install 'lmi-handlers[tracing]'. The import failed: {error}"
        ) from None


def check_grpc() -> None:
    """Raise ConfigurationError if gRPC's libraries are missing or incompatible."""
    try:
        import lmi_handlers.kserve_grpc.server  # noqa: F401
    except (ImportError, RuntimeError, TypeError) as error:  # generated code raises the latter two
        raise ConfigurationError(
            f"gRPC needs other libraries: pip install 'lmi-handlers[grpc]'. The import failed: {error}"
        ) from None


def ready_message(server: Server) -> str:
    """Return a line with the models, the URL, and a curl command to paste."""
    dispatcher = server.dispatcher
    if not dispatcher.models:
        return f"Ready: no model yet on {server.url} -- POST /models loads one"
    first = sorted(dispatcher.models)[0]
    path = "/invocations" if dispatcher.registry.only_model else f"/predictions/{quote(first)}"
    model = dispatcher.models[first]
    embeds = model.generates and not model.backend.generates
    key = "" if server.access.options.api_keys is None else ' -H "Authorization: Bearer $LMI_API_KEY"'
    body = EMBEDDING_BODY if embeds else EXAMPLE_BODY
    if embeds and is_reranker(model.backend):
        body = PAIR_BODY
    command = f"curl {server.url}{path}{key} -d {shlex.quote(body)}"
    also = "".join(f" and gRPC on {other.address}" for other in server.others)
    if server.management is not None:
        also += f", management on {server.management.address}"
    return f"Ready: {', '.join(sorted(dispatcher.models))} on {server.url}{also} -- try: {command}"


def addresses(server: Server) -> list[str]:
    """Return a line for each address that people open or give to a client."""
    managing = server.url if server.management is None else server.management.address
    lines = [("API", f"{server.url}/v1")]
    if server.has_pages:
        lines = [("Chat", server.url), *lines, ("Console", f"{managing}/console")]
    lines += [("gRPC", other.address) for other in server.others]
    return [f"{name:<8} {address}" for name, address in lines]
