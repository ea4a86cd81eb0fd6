"""vLLM's core as a child process of an actor, where it runs as it does on the server's host."""

import asyncio
import os
import signal
from contextlib import suppress
from functools import partial

import zmq.asyncio

from lmi_core.workers.messages import encode
from lmi_plugins.vllm_engine.arguments.parsing import engine_arguments
from lmi_plugins.vllm_engine.failures import Failures, death
from lmi_plugins.vllm_engine.library import (
    CONTEXT,
    CoreEngineProcManager,
    EngineCoreProc,
    Executor,
    current_platform,
)
from lmi_plugins.vllm_engine.loading import fit_to_model, loading_errors
from lmi_plugins.vllm_engine.main_memory import with_fitting_share
from lmi_plugins.vllm_engine.pings import WorkersTime
from lmi_plugins.vllm_engine.processes import announce_end, kill_with_children
from lmi_plugins.vllm_engine.remote.messages import (
    AskComputes,
    Computes,
    CoreEnded,
    EndCore,
    LoadCore,
    decode_to_core,
)
from lmi_plugins.vllm_engine.remote.sockets import run_core_with
from lmi_plugins.vllm_engine.socket_folder import SocketFolder

END_SECONDS = 10.0  # for a core that was asked to end


class Core:
    """The process of a core."""

    def __init__(self, load: LoadCore) -> None:
        """Start the process. Raise ConfigurationError for arguments that vLLM refuses."""
        given = with_fitting_share(load.arguments, load.share) if current_platform.is_cpu() else load.arguments
        arguments = engine_arguments(given)
        arguments.served_model_name = load.model
        self._failures = Failures(load.model)
        with loading_errors():
            fit_to_model(arguments)
            config = arguments.create_engine_config(CONTEXT)
        self._folder = SocketFolder()
        self._folder.enter()
        EngineCoreProc.run_engine_core = staticmethod(partial(run_core_with, load.keys))
        self._manager = CoreEngineProcManager(
            local_engine_count=1,
            start_index=0,
            local_start_index=0,
            vllm_config=config,
            local_client=False,
            handshake_address=load.address,
            executor_class=Executor.get_class(config),
            log_stats=True,
        )
        (self._process,) = self._manager.processes
        self._workers_time = WorkersTime(lambda: [self._process_id])

    @property
    def _process_id(self) -> int:
        return int(self._process.pid)

    async def serve(self, socket: zmq.asyncio.Socket) -> None:
        """Answer the server's messages until the core has ended."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        answering = asyncio.create_task(self._answer(socket))
        await ended.wait()
        loop.remove_reader(self._process.sentinel)
        answering.cancel()
        with suppress(asyncio.CancelledError):
            await answering
        self._folder.leave()
        await socket.send(encode(CoreEnded(self._failures.cause or death("vLLM's core", self._process.exitcode))))

    async def _answer(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            message = decode_to_core(await socket.recv())
            if isinstance(message, AskComputes):
                await socket.send(encode(Computes(await self._workers_time.grows())))
            elif isinstance(message, EndCore):
                await self._end(is_frozen=message.is_frozen)

    async def _end(self, *, is_frozen: bool) -> None:
        if not is_frozen:
            announce_end(self._process_id)
            with suppress(ProcessLookupError):
                os.kill(self._process_id, signal.SIGINT)
            await asyncio.to_thread(self._process.join, END_SECONDS)
        kill_with_children(self._process_id)
