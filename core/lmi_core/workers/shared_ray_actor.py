"""A worker in a Ray actor that servers on any machines share: each connects to the worker's own encrypted socket.

No server owns the actor: it ends itself once no server renews a lease.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Mapping
from typing import Any, NamedTuple

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from lmi_core.logs.logs import flush_log
from lmi_core.workers.channel import Keys, SharedChannel, notice_lost_machine
from lmi_core.workers.conversation import Place, WorkerDied
from lmi_core.workers.ray_actor import (
    Connection,
    RayWorker,
    WatchedActor,
    actor_options,
    connect,
    describe_failure,
    exit_actor,
    first_answer,
    host_address,
    kill_actor,
    run_target,
    target_function,
)
from lmi_core.workers.shared_worker import SharedSocket

logger = logging.getLogger(__name__)

NAMESPACE = "lmi_handlers"  # of the actors' names
NO_SERVER = ""
LEASE_SECONDS = 15.0
RENEWAL_SECONDS = 3.0
UNUSED_SECONDS = 60.0  # the grace period for a server that replaces a dead one
LOOK_SECONDS = 1.0  # between two looks at the leases, and at a worker that another server is loading
ATTEMPTS = 5  # to join a worker, whose actor may just be ending
LEAVE_SECONDS = 3.0
CALLS_AT_ONCE = 8
CONNECT_MILLISECONDS = 10_000
LOST = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED  # the end of a connection, and of a failed attempt


class Access(NamedTuple):
    """A server's access to the worker."""

    place: Place
    address: str
    key: bytes  # the worker's public key, which whoever connects must know
    loads: bool  # whether the server sends the worker its model


class SharedRayWorker(RayWorker):
    """The actor's class, whose calls all end at once; it runs a worker's target in a thread."""

    def __init__(self, target: str) -> None:
        super().__init__()
        keys = Keys.new()
        self._key = keys.public
        self._channel = SharedChannel(f"tcp://{self.place().node}:*", keys=keys)
        self._lock = threading.Lock()
        # The end of each server's, kept for a while once it has passed. The first server's replaces this one.
        self._leases = {NO_SERVER: time.monotonic() + LEASE_SECONDS}
        self._loader: str | None = None  # the server that sends the model
        self._is_ending = False
        threading.Thread(target=self._run, args=(target,), daemon=True).start()
        threading.Thread(target=self._end_unused, daemon=True).start()

    def join(self, server: str) -> Access | None:
        """Return a server's access, or None if it has to ask again, because another one loads the model.

        If that server is gone, end the actor, because what it has sent is incomplete.
        """
        with self._lock:
            if self._is_ending:
                return None
            self._leases.pop(NO_SERVER, None)
            self._leases[server] = time.monotonic() + LEASE_SECONDS
            self._loader = self._loader or server
            is_loaded = bool(self._channel.greeting)
            if is_loaded or self._loader == server:
                return Access(self.place(), self._channel.address, self._key, not is_loaded)
            self._is_ending = self._lacks_loader()
        if self._is_ending:
            self._exit_actor()
        return None

    def copy_files(self, target: str, address: str, keys: Keys) -> None:
        """Run another target, with the server that loads the model."""
        threading.Thread(target=run_target, args=(target, address, keys), daemon=True).start()

    def renew(self, server: str) -> None:
        """Record that a server still uses the worker; do nothing if it has left, as calls may overtake each other."""
        with self._lock:
            if server in self._leases:
                self._leases[server] = time.monotonic() + LEASE_SECONDS

    def leave(self, server: str) -> None:
        """Record that a server no longer uses the worker, which ends if it was the last one."""
        with self._lock:
            self._leases.pop(server, None)
            self._is_ending = not self._leases or self._lacks_loader()
        if self._is_ending:
            self._exit_actor()

    def _lacks_loader(self) -> bool:
        """Return whether the server that loads the model is gone before the worker has begun to load it."""
        if self._channel.greeting or self._channel.sharers or self._loader is None:
            return False
        now = time.monotonic()
        return self._leases.get(self._loader, now) <= now

    def _run(self, target: str) -> None:
        try:
            target_function(target)(self._channel)
        except Exception:
            logger.exception("the worker failed")
        finally:
            self._channel.close()
            self._exit()

    def _end_unused(self) -> None:
        while self._leases:
            time.sleep(LOOK_SECONDS)
            with self._lock:
                now = time.monotonic()
                self._leases = {server: end for server, end in self._leases.items() if now < end + UNUSED_SECONDS}
                self._is_ending = self._is_ending or not self._leases
        logger.info("no server uses the worker any longer")
        self._exit()

    def _exit(self) -> None:
        flush_log()
        os._exit(0)

    def _exit_actor(self) -> None:
        exit_actor()


class SharedRayActor(WatchedActor, SharedSocket):
    """An endpoint of a worker in an actor, which is created for the first server that wants it."""

    process_id = None

    def __init__(
        self, cluster: str, name: str, target: str, files: str, environment: Mapping[str, str], gpus: int
    ) -> None:
        """Share the worker with all servers that give it this `name`; for the other arguments see RayActor."""
        SharedSocket.__init__(self)
        WatchedActor.__init__(self)
        self._cluster = cluster
        self._name = name
        self._target = target
        self._files_target = files
        self._environment = environment
        self._gpus = gpus
        self._server = self._socket.get_string(zmq.IDENTITY)
        self.files: Connection | None = None

    async def start(self) -> None:
        if self._lost is not None:
            return
        ray = await connect(self._cluster)
        self._lost = asyncio.get_running_loop().create_future()
        self.end_with(self._lost, WorkerDied)
        access = await self._join(ray)
        self._watching.append(asyncio.create_task(self._renew()))
        self.place = access.place
        own = Keys.new()
        own._replace(server=access.key).use(self._socket)
        self._socket.set(zmq.CONNECT_TIMEOUT, CONNECT_MILLISECONDS)
        notice_lost_machine(self._socket)  # before a heartbeat fails, which would kill the worker for all servers
        self._watching.append(asyncio.create_task(self._watch(self._socket.get_monitor_socket(LOST), access.address)))
        self._socket.connect(access.address)
        if access.loads:
            self.files = Connection(self._context, host_address(), self._lost)
            self._watching.append(asyncio.create_task(self._watch_connection(self.files)))
            copying = self._actor.copy_files.remote(self._files_target, self.files.address, self.files.keys)
            await _call(_answer(copying))

    async def _join(self, ray: Any) -> Access:
        """Return the access to the worker, created if necessary, once its model is loaded or is this server's to load.

        Raise WorkerDied if it cannot be created.
        """
        create = ray.remote(SharedRayWorker).options(
            **actor_options(self._environment, self._gpus),
            name=self._name,
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            max_concurrency=CALLS_AT_ONCE,
        )
        attempts = ATTEMPTS
        while True:
            try:
                self._actor = await _call(asyncio.to_thread(create.remote, self._target))
                return await self._wait_joined()
            except WorkerDied as death:
                attempts -= 1
                if death.out_of_memory:  # it still waits for a node
                    self.kill()
                if death.out_of_memory or not attempts:
                    raise
            await asyncio.sleep(LOOK_SECONDS)

    async def _wait_joined(self) -> Access:
        is_waiting = False
        while True:
            access: Access | None = await first_answer(self._actor.join.remote(self._server), self._gpus)
            if access is not None:
                return access
            if not is_waiting:
                logger.info("waiting for an engine that another server is loading or has just stopped")
                is_waiting = True
            await asyncio.sleep(LOOK_SECONDS)

    async def stop(self) -> None:
        if self._actor is not None:
            try:
                await asyncio.wait_for(_answer(self._actor.leave.remote(self._server)), LEAVE_SECONDS)
            except TimeoutError:  # it is frozen, or waits for a node
                await asyncio.to_thread(kill_actor, self._actor)
            except Exception:  # Ray raises exceptions of many classes
                logger.debug("the actor, or Ray, has ended", exc_info=True)
        await self._end_watching()
        self._context.destroy(linger=0)  # also closes the monitors' sockets

    async def _renew(self) -> None:
        """Renew the lease until the actor has died, and report that."""
        while True:
            await asyncio.sleep(RENEWAL_SECONDS)
            try:
                await _call(_answer(self._actor.renew.remote(self._server)))
            except WorkerDied as death:
                self._lose(str(death))
                return

    async def _watch(self, monitor: zmq.asyncio.Socket, address: str) -> None:
        """Treat a lost connection as a death, because messages with tokens may be lost with it."""
        event = await recv_monitor_message(monitor)
        was_connected = event["event"] == zmq.EVENT_DISCONNECTED
        self._lose(f"the connection to the worker at {address} {'was lost' if was_connected else 'cannot be made'}")


async def _answer(call: Any) -> Any:
    return await asyncio.wrap_future(call.future())


async def _call(call: Awaitable[Any]) -> Any:
    """Return the result of a call to Ray or the actor. Raise WorkerDied if it fails."""
    try:
        return await call
    except Exception as error:  # Ray raises exceptions of many classes
        raise WorkerDied(describe_failure(error)) from None
