"""A worker in a Ray actor, on any node of a cluster: Ray places it, starts it, and reports its death.

Messages do not pass through Ray. They use a separate, encrypted socket. Only a worker that has received the keys
through Ray can connect to it.
"""

import asyncio
import importlib
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from lmi_core.errors import ConfigurationError
from lmi_core.logs.logs import LOG_LEVEL_VARIABLE, configure_logging_of_another_program, log_environment
from lmi_core.workers.channel import Channel, Keys
from lmi_core.workers.conversation import Place, WorkerDied, WorkerSocket

if TYPE_CHECKING:
    from collections.abc import Callable

LOCAL = "local"  # instead of an address: a cluster on this machine, which ends with the server
_connecting = threading.Lock()  # models start at the same time
HANDSHAKE_FAILED = (  # each precedes the end of its connection
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
)
THREADS_VARIABLE = "OMP_NUM_THREADS"
STARTING_SECONDS = 600.0  # for a cluster to find resources for an actor and start it
# By default, Ray ends a process, such as this server, that has not reached the cluster's head for a minute.
WITHOUT_HEAD = {"RAY_gcs_rpc_server_reconnect_timeout_s": str(7 * 24 * 3600)}


class RayWorker:
    """The actor's class: it runs a worker's target, as `lmi_core.workers.worker` does in a child process."""

    def __init__(self) -> None:
        configure_logging_of_another_program(os.environ[LOG_LEVEL_VARIABLE])  # Ray sends the lines to the server
        if os.environ.get(THREADS_VARIABLE) == "1":  # Ray's, because an engine takes one of the node's CPUs
            os.environ[THREADS_VARIABLE] = str(threads_of_engine())

    def place(self) -> Place:
        return Place(host_address(), os.getpid())

    def run(self, *targets: "tuple[str, str, Keys]") -> None:
        """Run the first target until its connection ends, and the others in parallel threads."""
        first, *others = targets
        for each in others:
            threading.Thread(target=run_target, args=each, daemon=True).start()
        run_target(*first)


def threads_of_engine() -> int:
    """Return the number of threads of an engine on this node: the cores, divided by the engines that have room."""
    ray = _ray()
    node_id = ray.get_runtime_context().get_node_id()
    engines = next(int(node["Resources"].get("CPU", 1)) for node in ray.nodes() if node["NodeID"] == node_id)
    return max(1, len(os.sched_getaffinity(0)) // max(1, engines))


def run_target(target: str, address: str, keys: Keys) -> None:
    target_function(target)(Channel(address, keys))


def target_function(target: str) -> "Callable[[Channel], None]":
    """Import a worker's target, "package.module:function"."""
    module, _, name = target.partition(":")
    run: Callable[[Channel], None] = getattr(importlib.import_module(module), name)
    return run


async def connect(cluster: str) -> Any:
    """Return the `ray` module, connected to a cluster: `auto`, `local`, or an address.

    Raise ConfigurationError if that fails.
    """
    ray = await asyncio.to_thread(_connect, cluster)
    # With Ray's own handler of this signal, the process is aborted after 3 seconds, in which requests may not finish
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    return ray


def _connect(cluster: str) -> Any:
    for name, value in WITHOUT_HEAD.items():
        os.environ.setdefault(name, value)  # read when Ray is imported
    try:
        ray = _ray()
    except ImportError as error:
        raise ConfigurationError("ray_address needs Ray: pip install 'lmi-handlers[ray]'") from error
    with _connecting:
        if not ray.is_initialized():
            try:
                ray.init(
                    address=cluster, include_dashboard=False if cluster == LOCAL else None, configure_logging=False
                )
            except Exception as error:  # Ray raises exceptions of many classes
                raise ConfigurationError(f"ray_address={cluster}: {' '.join(str(error).split())}") from error
    return ray


def host_address() -> str:
    """Return the address of this host for the nodes of the connected cluster."""
    return str(_ray().util.get_node_ip_address())


def num_gpus() -> int:
    """Return the number of GPUs of the cluster's nodes; 0 before `connect`."""
    ray: Any = sys.modules.get("ray")
    return int(ray.cluster_resources().get("GPU", 0)) if ray is not None and ray.is_initialized() else 0


def max_node_gpus() -> int:
    """Return the number of GPUs of the cluster's largest node; 0 before `connect`."""
    return max(_gpus_of_nodes(), default=0)


def gpus_in_groups(size: int) -> int:
    """Return the number of GPUs of the cluster in groups of this size, each on one node; 0 before `connect`."""
    return sum(gpus // size * size for gpus in _gpus_of_nodes()) if size else 0


def _gpus_of_nodes() -> list[int]:
    ray: Any = sys.modules.get("ray")
    nodes = ray.nodes() if ray is not None and ray.is_initialized() else []
    return [int(node["Resources"].get("GPU", 0)) for node in nodes if node["Alive"]]


def has_room(gpus: int) -> bool:
    """Return whether the connected cluster has the resources of another actor now, without one that has to end."""
    free = _ray().available_resources()
    return bool(free.get("CPU", 0) >= 1 and free.get("GPU", 0) >= gpus)


def _ray() -> Any:
    return importlib.import_module("ray")


def actor_options(environment: Mapping[str, str], gpus: int) -> dict[str, Any]:
    """Return Ray's options for the actor of a worker with an environment and a number of GPUs."""
    logging_variables = {LOG_LEVEL_VARIABLE: os.environ.get(LOG_LEVEL_VARIABLE, "info"), **log_environment()}
    return {
        "num_cpus": 1,
        "num_gpus": gpus,
        "max_restarts": 0,
        # Use all nodes, including those without GPUs, instead of filling one after another
        "scheduling_strategy": "SPREAD",
        "runtime_env": {"env_vars": WITHOUT_HEAD | dict(environment) | logging_variables},
    }


async def first_answer(call: Any, gpus: int) -> Any:
    """Return the answer to a new actor's first call. Raise WorkerDied if it does not start."""
    try:
        async with asyncio.timeout(STARTING_SECONDS):
            return await asyncio.wrap_future(call.future())
    except TimeoutError:
        wanted = f"1 CPU and {gpus} GPUs" if gpus else "1 CPU"
        full = WorkerDied(f"no node of the Ray cluster has had {wanted} free for {STARTING_SECONDS:g} s")
        full.out_of_memory = True
        raise full from None
    except Exception as error:  # Ray raises exceptions of many classes
        raise WorkerDied(describe_failure(error)) from None


def exit_actor() -> None:
    """End the actor whose call this is."""
    _ray().actor.exit_actor()


def kill_actor(actor: Any) -> None:
    with suppress(Exception):  # Ray itself has stopped
        _ray().kill(actor)


class Connection(WorkerSocket):
    """The server's end of an encrypted connection to a worker."""

    def __init__(self, context: zmq.asyncio.Context, host: str, lost: "asyncio.Future[str]") -> None:
        """Wait for the worker at a host's address; `lost` is set to the reason why no further message will arrive."""
        own, theirs = Keys.new(), Keys.new()
        super().__init__(context.socket(zmq.PAIR))
        own.serve(self._socket)
        self.end_with(lost, WorkerDied)
        self.address = f"tcp://{host}:{self._socket.bind_to_random_port(f'tcp://{host}')}"
        self.keys = Keys(theirs.public, theirs.secret, own.public)  # the worker's keys

    async def wait_ended(self) -> None:
        """Wait until the worker's connection has ended; ignore other connections, such as those of port scans."""
        monitor = self._socket.get_monitor_socket()
        candidates = set[int]()  # descriptors, because the event of a handshake has none
        is_connected = has_failed = False
        while True:
            event = await recv_monitor_message(monitor)
            kind, descriptor = event["event"], event["value"]
            if kind == zmq.EVENT_ACCEPTED and not is_connected:
                candidates.add(descriptor)
            elif kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                is_connected = True
            elif kind == zmq.EVENT_DISCONNECTED:
                if is_connected and descriptor in candidates and not has_failed:
                    return
                candidates.discard(descriptor)
            has_failed = kind in HANDSHAKE_FAILED


class WatchedActor:
    """An actor, and what ends the connections to it."""

    def __init__(self) -> None:
        self._actor: Any = None
        self._lost: asyncio.Future[str] | None = None  # why no further message will arrive
        self._watching: list[asyncio.Task[None]] = []
        self.place: Place | None = None

    def kill(self) -> None:
        if self._actor is not None:
            kill_actor(self._actor)
        self._lose("the worker was killed")

    async def _end_watching(self) -> None:
        if self._actor is not None:
            self._lose("the worker was stopped")
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        self._actor = None

    async def _watch_connection(self, connection: Connection) -> None:
        """Treat a lost connection as a death, because messages with tokens may be lost with it."""
        await connection.wait_ended()
        self._lose("the connection to the worker was lost")

    def _lose(self, why: str) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(why)


class RayActor(WatchedActor):
    """An endpoint of a worker in an actor with a number of GPUs."""

    def __init__(self, cluster: str, target: str, files: str, environment: Mapping[str, str], gpus: int) -> None:
        """Run a worker's `target` and, in parallel, the target `files` with a separate connection."""
        super().__init__()
        self._cluster = cluster
        self._targets = (target, files)
        self._environment = environment
        self._gpus = gpus
        self._context = zmq.asyncio.Context()
        self._connections: list[Connection] = []

    @property
    def process_id(self) -> int | None:
        return None

    @property
    def files(self) -> Connection:
        return self._connections[1]

    async def start(self) -> None:
        if self._actor is not None:
            return
        ray = await connect(self._cluster)
        self._lost = asyncio.get_running_loop().create_future()
        host = host_address()
        self._connections = [Connection(self._context, host, self._lost) for _ in self._targets]
        self._watching = [asyncio.create_task(self._watch_connection(each)) for each in self._connections]
        create = ray.remote(RayWorker).options(**actor_options(self._environment, self._gpus))
        self._actor = await asyncio.to_thread(create.remote)
        self.place = await first_answer(self._actor.place.remote(), self._gpus)
        connections = zip(self._targets, self._connections, strict=True)
        running = self._actor.run.remote(*((target, each.address, each.keys) for target, each in connections))
        self._watching.append(asyncio.create_task(self._watch_actor(running)))

    def send(self, message: bytes) -> None:
        self._connections[0].send(message)

    def receive(self) -> Awaitable[bytes]:
        return self._connections[0].receive()

    async def stop(self) -> None:
        if self._actor is not None:
            await asyncio.to_thread(kill_actor, self._actor)
        await self._end_watching()
        self._context.destroy(linger=0)  # also closes the monitors' sockets

    async def _watch_actor(self, running: Any) -> None:
        try:
            await asyncio.wrap_future(running.future())
        except Exception as error:  # Ray raises exceptions of many classes
            self._lose(describe_failure(error))
        else:
            self._lose("the worker ended")


def describe_failure(error: Exception) -> str:
    return f"the worker's actor failed: {' '.join(str(error).split())[:300]}"
