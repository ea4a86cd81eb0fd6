"""A loaded adapter, and the state of its files at that time.

After evicting an adapter, vLLM reads its files again in the middle of a step: an error there would end the engine for
all requests, and changed weights would give different answers under the same name.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

import zmq

from lmi_core.errors import AdapterNotFound, BackendUnhealthy
from lmi_core.remote.nodes.sending import NodeFiles
from lmi_core.workers.adapter_files import FilesState, state_of
from lmi_plugins.vllm_engine.library import AsyncLLM, EngineDeadError, LoRARequest

logger = logging.getLogger(__name__)

# The files on other machines, by the engine there
_files: WeakKeyDictionary[AsyncLLM, NodeFiles] = WeakKeyDictionary()
_threads = ThreadPoolExecutor(2, thread_name_prefix="adapter-files")  # separate threads, because a file system may hang


def copy_files_for(engine: AsyncLLM, files: NodeFiles | None) -> None:
    """Let adapters be copied to the machine of an engine, if it is another one."""
    if files is not None:
        _files[engine] = files


@dataclass(eq=False, slots=True)
class Adapter:
    """An adapter as passed to vLLM, which identifies it by number."""

    request: LoRARequest
    state: FilesState = ()
    _warned: bool = field(default=False, init=False)
    # Requests with the folder's copy on the machine of an engine
    _copied: WeakKeyDictionary[AsyncLLM, LoRARequest] = field(default_factory=WeakKeyDictionary, init=False)

    @property
    def number(self) -> int:
        return int(self.request.lora_int_id)

    @property
    def name(self) -> str:
        return str(self.request.lora_name)

    async def request_to(self, engine: AsyncLLM) -> LoRARequest:
        """Return the request for an engine, after copying the files to its machine if it is another one.

        Raise InvalidAdapter if that fails, or EngineDeadError if the engine dies.
        """
        if (files := _files.get(engine)) is None:
            return self.request
        if engine not in self._copied:
            try:
                copy = await files.bring_adapter(Path(self.request.lora_path))
            except (BackendUnhealthy, zmq.ZMQError) as error:  # the latter: its sockets are closed already
                raise EngineDeadError from error
            self._copied[engine] = LoRARequest(self.name, self.number, str(copy))
        return self._copied[engine]

    async def checked(self, engine: AsyncLLM) -> LoRARequest:
        """Return the request for an engine.

        Raise AdapterNotFound if the adapter's files are missing or have changed, and otherwise like `request_to`.
        """
        folder = Path(self.request.lora_path)
        if await asyncio.get_running_loop().run_in_executor(_threads, state_of, folder) == self.state:
            return await self.request_to(engine)
        if self.number in await engine.list_loras():
            request = self._copied.get(engine, self.request)
            await engine.add_lora(request)  # it is already loaded; this marks it as recently used
            return request
        if not self._warned:
            self._warned = True
            logger.warning(
                "adapter %s: vLLM has evicted it, and its files in %s are missing or have changed since it was loaded",
                self.name,
                self.request.lora_path,
            )
        raise AdapterNotFound(
            f"the adapter `{self.name}` can no longer be loaded: its files are missing, or have changed since it was "
            "loaded. Load it again"
        )
