"""The LoRA adapters of vLLM's engines with one model, by name."""

import asyncio
import itertools
import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import safe_open

from lmi_core.errors import AdapterNotFound, BackendUnhealthy, ConfigurationError, InvalidAdapter, InvalidParameter
from lmi_core.inspection.pickles import pickled_adapter, refusal
from lmi_core.script.formatters.model_code import ADAPTER_WEIGHTS
from lmi_core.workers.adapter_files import state_of
from lmi_core.workers.replicas import Replicas
from lmi_plugins.vllm_engine.adapters.adapter import Adapter
from lmi_plugins.vllm_engine.engine import VllmEngine
from lmi_plugins.vllm_engine.library import AsyncLLM, EngineDeadError, LoRARequest

# In the names of an adapter's weights, as vLLM looks for it. With such an adapter vLLM takes the rows of a prompt for
# those of the batch's sequences: their log probs get no adapter's change, or that of another request's
# (https://github.com/vllm-project/vllm/issues/51594, https://github.com/vllm-project/vllm/issues/16668).
OUTPUT_LAYER = "lm_head"


def changes_output_layer(folder: Path) -> bool:
    """Return whether an adapter changes the output layer, by its weights in the file that vLLM reads."""
    safetensors = folder / "adapter_model.safetensors"
    if safetensors.is_file():
        with safe_open(safetensors, "pt") as weights:
            return any(OUTPUT_LAYER in name for name in weights.keys())  # noqa: SIM118  # it is no dictionary
    for path in (folder / "adapter_model.bin", folder / "adapter_model.pt"):
        if path.is_file():
            return any(OUTPUT_LAYER in name for name in torch.load(path, map_location="meta", weights_only=True))
    return False


def _refuse_long(folder: Path) -> None:
    """Raise InvalidAdapter for LongLoRA, whose scaled positions vLLM would silently ignore."""
    with suppress(OSError, ValueError):  # vLLM will report them
        config = json.loads((folder / ADAPTER_WEIGHTS).read_bytes())
        if isinstance(config, dict) and config.get("context_length"):
            raise InvalidAdapter(f"LoRA with context_length is not supported. Given: {config['context_length']}")


class VllmAdapters:
    """The adapters that requests may name. vLLM identifies them by number.

    Running requests keep a replaced or unloaded adapter until they end.
    """

    def __init__(self, engines: Replicas[VllmEngine], *, allow_pickle: bool = False) -> None:
        self._engines = engines
        self._allow_pickle = allow_pickle
        self._numbers = itertools.count(1)
        self._adapters: dict[str, Adapter] = {}
        self._of_output_layer: str | None = None  # an adapter that changes that layer, unloaded or not

    @property
    def names(self) -> Collection[str]:
        return self._adapters.keys()

    async def load_all(self, folders: Mapping[str, Path]) -> None:
        """Load the adapters of a model directory. Raise ConfigurationError if one does not fit."""
        for name, folder in folders.items():
            try:
                await self.load(name, folder)
            except InvalidAdapter as error:
                raise ConfigurationError(f"adapter {name}: {error.message}") from error

    async def load(self, name: str, folder: Path) -> None:
        """Load an adapter, replacing one of the same name and keeping its pin.

        Raise InvalidAdapter if it does not fit, or BackendUnhealthy if the engine dies or is being replaced.
        """
        _refuse_long(folder)
        if fault := refusal(pickled_adapter(folder), self._allow_pickle):
            raise InvalidAdapter(fault)
        state = await asyncio.to_thread(state_of, folder)
        adapter = Adapter(LoRARequest(name, next(self._numbers), str(folder)), state)
        async with self._engines.changing:
            engines = self._engines.members
            try:
                await asyncio.gather(*(_load(adapter, engine.vllm) for engine in engines))
            except EngineDeadError:
                raise BackendUnhealthy("the adapter was not loaded: vLLM's engine died") from None
            except (BackendUnhealthy, InvalidAdapter):
                raise
            except Exception as error:  # the engine's process may raise anything
                raise InvalidAdapter(f"{folder} cannot be loaded: {' '.join(str(error).split())}") from error
            before = self._adapters.get(name)
            for slots in [engine.adapter_slots for engine in engines]:
                if before is not None and slots.is_pinned(before):
                    await slots.pin(adapter, in_place_of=before)
                    slots.unpin(before)
            if changes_output_layer(folder):
                self._of_output_layer = name
            self._adapters[name] = adapter

    async def pin(self, name: str, pinned: bool) -> None:
        """Pin an adapter to a slot of the engine, or unpin it.

        Raise AdapterNotFound, InvalidAdapter if too many are pinned, or BackendUnhealthy like `load`.
        """
        adapter = self._adapter(name)
        async with self._engines.changing:
            if pinned:
                for engine in self._engines.members:
                    engine.check_health()
                    await engine.adapter_slots.pin(adapter)
            else:
                self._unpin(adapter)

    def unload(self, name: str) -> None:
        """Unload an adapter. Raise AdapterNotFound if there is none."""
        self._unpin(self._adapter(name))
        del self._adapters[name]

    def _unpin(self, adapter: Adapter) -> None:
        for engine in self._engines.members:
            engine.adapter_slots.unpin(adapter)

    def _adapter(self, name: str) -> Adapter:
        if name not in self._adapters:
            raise AdapterNotFound.of(name, self._adapters)
        return self._adapters[name]

    def check_prompt_log_probs(self) -> None:
        """Raise InvalidParameter if an adapter may make vLLM's prompt log probs wrong."""
        if self._of_output_layer is not None:
            raise InvalidParameter(
                "`decoder_input_details` and `prompt_logprobs` cannot be used: the adapter "
                f"`{self._of_output_layer}` changes the output layer ({OUTPUT_LAYER}), and with such an adapter vLLM "
                "computes wrong prompt log probabilities. Remove these parameters, or serve that adapter from another "
                "model directory"
            )

    def find(self, name: str | None) -> Adapter | None:
        """Return an adapter; None without a name. Raise AdapterNotFound if it has been unloaded in the meantime."""
        return None if name is None else self._adapter(name)


async def _load(adapter: Adapter, engine: AsyncLLM) -> None:
    await engine.add_lora(await adapter.request_to(engine))
