"""A loaded adapter, and the state of its files at that time.

After evicting an adapter, vLLM reads its files again in the middle of a step: an error there would end the engine for
all requests, and changed weights would give different answers under the same name.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from lmi_core.errors import AdapterNotFound
from lmi_core.workers.adapter_files import FilesState, state_of
from lmi_plugins.vllm_engine.library import AsyncLLM, LoRARequest

logger = logging.getLogger(__name__)

_threads = ThreadPoolExecutor(2, thread_name_prefix="adapter-files")  # separate threads, because a file system may hang


@dataclass(eq=False, slots=True)
class Adapter:
    """An adapter as passed to vLLM, which identifies it by number."""

    request: LoRARequest
    state: FilesState = ()
    _warned: bool = field(default=False, init=False)

    @property
    def number(self) -> int:
        return int(self.request.lora_int_id)

    @property
    def name(self) -> str:
        return str(self.request.lora_name)

    async def check(self, engine: AsyncLLM) -> None:
        """Raise AdapterNotFound if the adapter's files are missing or have changed."""
        folder = Path(self.request.lora_path)
        if await asyncio.get_running_loop().run_in_executor(_threads, state_of, folder) == self.state:
            return
        if self.number in await engine.list_loras():
            await engine.add_lora(self.request)  # it is already loaded; this marks it as recently used
            return
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
