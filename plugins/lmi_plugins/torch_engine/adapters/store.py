"""Knows which adapters there are, which are in main memory, and which are on the device."""

from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Sequence as Items
from pathlib import Path

import torch
from transformers import PreTrainedModel

from lmi_core.errors import AdapterNotFound, ConfigurationError, InvalidAdapter
from lmi_plugins.torch_engine.adapters.adapter import Adapter, AdapterWeights
from lmi_plugins.torch_engine.adapters.lora_layers import LoraLayers
from lmi_plugins.torch_engine.adapters.peft_adapter import read_directory, read_tensors
from lmi_plugins.torch_engine.sequences.chunk import Chunk
from lmi_plugins.torch_engine.worker.messages import AdapterTensors, EngineOptions

Source = Path | AdapterTensors


class AdapterStore:
    """The adapters by name, of which those used last are kept: on the device and, more of them, in main memory.

    One with a directory is read again when it is asked for; one that came as tensors is gone when others displace it.
    Only `read` may be called beside the engine's own thread.
    """

    def __init__(self, layers: LoraLayers, max_loras: int, max_cpu_loras: int) -> None:
        self._layers = layers
        self._max_cpu_loras = max_cpu_loras
        self._by_name: dict[str, Adapter] = {}
        self._in_memory: OrderedDict[Adapter, None] = OrderedDict()  # the latest used last, as below
        self._slots: OrderedDict[int, int] = OrderedDict()  # by the adapter's serial number, so that it can be freed
        self._free_slots = list(range(max_loras))

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    @property
    def modules(self) -> dict[str, tuple[int, int]]:
        """The sizes of each module that can be adapted: how many numbers it takes and gives for a token."""
        return self._layers.modules

    def read(self, source: Source) -> AdapterWeights:
        """Return an adapter's weights; raise InvalidAdapter if they cannot be read or do not fit the model."""
        weights = read_directory(source) if isinstance(source, Path) else read_tensors(source)
        self._layers.check(weights)
        return weights

    def add(self, name: str, source: Source, weights: AdapterWeights) -> None:
        """Give an adapter a name; sequences that run with another one of that name go on with theirs."""
        if name in self._by_name:
            self.remove(name)
        adapter = Adapter(name, source if isinstance(source, Path) else None, weights)
        self._by_name[name] = adapter
        self._remember(adapter)

    def remove(self, name: str) -> None:
        """Forget an adapter, which its sequences hold as long as they run; raise AdapterNotFound if there is none."""
        adapter = self.get(name)
        del self._by_name[name]
        self._in_memory.pop(adapter, None)

    def get(self, name: str) -> Adapter:
        """Return the adapter of that name, as the one used last; raise AdapterNotFound if there is none."""
        if name not in self._by_name:
            raise AdapterNotFound.of(name, self._by_name)
        adapter = self._by_name[name]
        if adapter in self._in_memory:
            self._in_memory.move_to_end(adapter)
        return adapter

    def begin(self, chunks: Items[Chunk]) -> None:
        """Make the next forward passes those of these chunks, for which `prepare` was called."""
        adapters = [chunk.sequence.adapter for chunk in chunks]
        slots = [None if adapter is None else self._slots[adapter.serial] for adapter in adapters]
        self._layers.begin(slots, [len(chunk) for chunk in chunks])

    def prepare(self, chunks: Items[Chunk]) -> dict[Adapter | None, str]:
        """Put the adapters of the chunks on the device; return those that cannot be there, and why."""
        failed: dict[Adapter | None, str] = {}
        needed = {adapter: None for chunk in chunks if (adapter := chunk.sequence.adapter) is not None}
        for adapter in needed:
            if adapter.serial in self._slots:
                self._slots.move_to_end(adapter.serial)
        for adapter in needed:
            if adapter.serial not in self._slots:
                try:
                    self._load(adapter)
                except (InvalidAdapter, torch.OutOfMemoryError) as error:
                    failed[adapter] = f"adapter {adapter.name}: {error}"
        return failed

    def _load(self, adapter: Adapter) -> None:
        if adapter.weights is None:
            assert adapter.directory is not None
            adapter.weights = self.read(adapter.directory)
        if self._by_name.get(adapter.name) is adapter:
            self._remember(adapter)
        slot = self._free_slots.pop() if self._free_slots else self._slots.popitem(last=False)[1]
        try:
            self._layers.fill(slot, adapter.weights)
        except BaseException:
            self._free_slots.append(slot)
            raise
        self._slots[adapter.serial] = slot

    def _remember(self, adapter: Adapter) -> None:
        self._in_memory[adapter] = None
        self._in_memory.move_to_end(adapter)
        while len(self._in_memory) > self._max_cpu_loras:
            oldest, _ = self._in_memory.popitem(last=False)
            if oldest.directory is None:
                del self._by_name[oldest.name]
            else:
                oldest.weights = None


def require_store(store: AdapterStore | None) -> AdapterStore:
    """Return the store; raise AdapterNotFound where there is none."""
    if store is None:
        raise AdapterNotFound("this model does not support adapters: option.enable_lora is false")
    return store


def open_store(options: EngineOptions, model: PreTrainedModel, run_tokens: Callable[[int], object]) -> AdapterStore:
    """Return a store of the options' adapters; raise ConfigurationError for a wrong one."""
    layers = LoraLayers(model, options.max_loras, options.max_lora_rank, run_tokens)
    store = AdapterStore(layers, options.max_loras, options.max_cpu_loras or options.max_loras)
    for name, directory in options.adapters.items():
        try:
            store.add(name, Path(directory), store.read(Path(directory)))
        except InvalidAdapter as error:
            raise ConfigurationError(f"adapter {name}: {error.message}") from None
    return store
