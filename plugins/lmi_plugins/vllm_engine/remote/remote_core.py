"""vLLM's core in an actor of a Ray cluster, as an engine in the server's process sees it.

The core and vLLM's client in the server's process exchange vLLM's own messages, as they do on one host.
"""

import asyncio
import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from lmi_core.errors import ConfigurationError
from lmi_core.logs.loading_progress import Report, unheard
from lmi_core.remote.nodes.sending import RECEIVING, NodeFiles
from lmi_core.workers.conversation import Conversation, Place, completed
from lmi_core.workers.ray_actor import RayActor, host_address
from lmi_plugins.vllm_engine.arguments.parsing import engine_arguments
from lmi_plugins.vllm_engine.library import VERSION, AsyncEngineArgs, AsyncLLM
from lmi_plugins.vllm_engine.loading import from_arguments, load_engine, note_exception
from lmi_plugins.vllm_engine.remote.messages import (
    AskComputes,
    Computes,
    CoreEnded,
    EndCore,
    FromCore,
    LoadCore,
    decode_from_core,
)
from lmi_plugins.vllm_engine.remote.sockets import CoreSockets

TARGET = "lmi_plugins.vllm_engine.remote.start:run"
FAILED = "vLLM cannot load the model on the Ray cluster"
ANSWER_SECONDS = 5.0  # for an actor, which computes nothing
END_SECONDS = 15.0  # for a core that was asked to end
FOLDERS = ("model", "tokenizer", "hf_config_path", "generation_config")  # arguments that may name one
DRAFT = "speculative_config"
DRAFT_DEGREE = "draft_tensor_parallel_size"  # in it
# Environment variables of vLLM and its libraries that apply to every host of a cluster, by prefix
VARIABLES = ("VLLM_", "FLASH_ATTENTION_", "LMCACHE_", "NCCL_", "UCX_")
OF_ONE_HOST = {  # those that do not
    *("VLLM_API_KEY", "VLLM_HOST_IP", "VLLM_LOOPBACK_IP", "VLLM_PORT", "VLLM_RPC_BASE_PATH", "VLLM_TARGET_DEVICE"),
    *("VLLM_NIXL_SIDE_CHANNEL_HOST", "VLLM_P2P_SIDE_CHANNEL_HOST", "VLLM_EC_SIDE_CHANNEL_HOST"),
    *("VLLM_DP_MASTER_IP", "VLLM_DP_MASTER_PORT"),
    # Set by vLLM's client on a host without GPU
    *("VLLM_DISABLE_SHARED_EXPERTS_STREAM", "VLLM_SSM_CONV_STATE_LAYOUT"),
}
OF_CORE = {
    *("tensor_parallel_size", "pipeline_parallel_size", "distributed_executor_backend"),
    *("decode_context_parallel_size", "prefill_context_parallel_size"),
}


class RemoteCore:
    """A core on another machine."""

    def __init__(self, cluster: str, gpus: int, share: float) -> None:
        """Create a core with a number of GPUs without starting it; for `share` see LoadCore."""
        self.cause: str | None = None  # of its end, unless `stop` ends it
        self.files: NodeFiles | None = None
        self._share = share
        variables = {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)}
        environment = {name: variables[name] for name in variables.keys() - OF_ONE_HOST}
        endpoint = RayActor(cluster, TARGET, RECEIVING, environment, gpus)
        self._worker: Conversation[FromCore] = Conversation(endpoint, decode_from_core)
        self._sockets: CoreSockets | None = None
        self._loading: asyncio.Task[AsyncLLM] | None = None
        self._following: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._ended = asyncio.Event()
        self._manager = _CoreManager()
        self._computes: asyncio.Future[bool] | None = None  # the answer to the last question

    @property
    def place(self) -> Place | None:
        return self._worker.endpoint.place

    async def load(self, arguments: Mapping[str, str], model: str | None, report: Report = unheard) -> AsyncLLM:
        """Start the core with vLLM's arguments, and return its client.

        Raise ConfigurationError if that fails, for the reason in `cause` if it is known.
        """
        try:
            await self._worker.load(partial(self._load_message, arguments, model, report), FAILED, report)
            self._following = asyncio.create_task(self._follow())
            assert self._loading is not None, "created with the load message"
            ended = asyncio.create_task(self._ended.wait())
            await asyncio.wait({self._loading, ended}, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            if not self._loading.done():
                raise ConfigurationError(f"{FAILED}: {self.cause}")
            return self._loading.result()
        except BaseException:
            await self.stop()
            raise

    async def computes(self) -> bool:
        """Return whether a worker of the core has computed since the last call, or is ready to."""
        self._computes = asyncio.get_running_loop().create_future()
        self._worker.send(AskComputes())
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._computes, ANSWER_SECONDS)
        return False

    def kill(self) -> None:
        """Kill a frozen core."""
        self._worker.send(EndCore(is_frozen=True))

    async def wait_ended(self) -> None:
        """Wait until the end of a core that has died, with its cause, is reported."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), ANSWER_SECONDS)

    async def stop(self) -> None:
        """End the core and its actor; if cancelled, still wait for them. Safe to call repeatedly."""
        await completed(self._stop())

    async def _stop(self) -> None:
        try:
            await self._end_core()
        finally:
            self._ended.set()
            self._manager.lost.set()
            await self._worker.stop()

    async def _end_core(self) -> None:
        self._is_stopping = True
        if self._loading is not None and not self._loading.done():
            assert self._sockets is not None
            await asyncio.to_thread(self._sockets.interrupt)
            self._loading.cancel()
            await asyncio.wait({self._loading})
            note_exception(self._loading)
        if self._following is not None:
            if not self._ended.is_set():
                self._worker.send(EndCore())
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), END_SECONDS)
            self._following.cancel()
            await asyncio.wait({self._following})

    async def _load_message(self, arguments: Mapping[str, str], model: str | None, report: Report) -> LoadCore:
        """Start vLLM's client, and return the message with the address at which it waits for the core."""
        self.files = NodeFiles.of(self._worker)
        there = await self._with_files(arguments, report)
        report(f"loading the model in vLLM's engine on node {self.place.node if self.place else ''}", None, None)
        host = host_address()
        here = await asyncio.to_thread(_client_arguments, arguments, model, host)
        sockets = self._sockets = CoreSockets(host)
        self._loading = asyncio.create_task(load_engine(partial(self._create, here, sockets)))
        address = asyncio.wrap_future(sockets.address)
        await asyncio.wait({address, self._loading}, return_when=asyncio.FIRST_COMPLETED)
        if not address.done():
            self._loading.result()
        return LoadCore(VERSION, there, model, await address, sockets.keys, self._share)

    async def _with_files(self, arguments: Mapping[str, str], report: Report) -> dict[str, str]:
        """Return the arguments with folders of the core's node, to which they are copied."""
        files = self.files
        assert files is not None, "started on a cluster"

        async def bring(source: str) -> str:
            return str(await files.bring(Path(source), report)) if Path(source).is_dir() else source

        found = {**arguments, **{name: await bring(arguments[name]) for name in FOLDERS if name in arguments}}
        if DRAFT in found and (draft := json.loads(found[DRAFT])).get("model"):
            found[DRAFT] = json.dumps({**draft, "model": await bring(draft["model"])})
        return found

    def _create(self, arguments: AsyncEngineArgs, sockets: CoreSockets) -> AsyncLLM:
        """Create the client, in a thread."""
        with sockets.used():
            engine = from_arguments(arguments)
        client: Any = engine.engine_core
        client.resources.engine_manager = self._manager
        client.start_engine_core_monitor()
        return engine

    async def _follow(self) -> None:
        """Read the actor's messages until the core has ended."""
        self._on_end(await self._worker.follow(self._deliver))

    def _deliver(self, message: FromCore) -> None:
        if isinstance(message, Computes):
            if self._computes is not None and not self._computes.done():
                self._computes.set_result(message.value)
        elif isinstance(message, CoreEnded):
            self._on_end(message.cause)
            assert self._following is not None
            self._following.cancel()  # the end of the actor, which follows, is no other event

    def _on_end(self, cause: str) -> None:
        if not self._is_stopping:
            self.cause = cause
        self._ended.set()
        self._manager.lost.set()


class _CoreManager:
    """The manager of a core's process for vLLM's client, as it calls its own for a process on this host."""

    def __init__(self) -> None:
        self.processes: list[Any] = []  # on this host
        self.lost = threading.Event()

    def monitor_engine_liveness(self) -> None:
        """Wait until the core has ended; the client then fails its requests."""
        self.lost.wait()

    def shutdown(self, timeout: float | None = None) -> None:
        """Stop waiting; `RemoteCore.stop` ends the core."""
        self.lost.set()


def _client_arguments(given: Mapping[str, str], model: str | None, host: str) -> AsyncEngineArgs:
    """Return the arguments of the client, whose host may have fewer devices than the core needs."""
    own = {name: value for name, value in given.items() if name not in OF_CORE}
    if DRAFT in own:
        own[DRAFT] = json.dumps({key: value for key, value in json.loads(own[DRAFT]).items() if key != DRAFT_DEGREE})
    arguments = engine_arguments(own)
    arguments.served_model_name = model
    arguments.data_parallel_size_local = 0  # the only core is not on this host
    arguments.data_parallel_address = host
    return arguments
