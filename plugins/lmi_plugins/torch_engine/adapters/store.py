"""All adapters, including those in main memory and on the device."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from collections.abc import Sequence as Items
from contextlib import suppress
from pathlib import Path

import torch
from transformers import PreTrainedModel

from lmi_core.errors import AdapterNotFound, ConfigurationError, InvalidAdapter
from lmi_plugins.torch_engine.adapters.lora_layers import LoraLayers
from lmi_plugins.torch_engine.adapters.peft_adapter import read_directory, read_tensors
from lmi_plugins.torch_engine.adapters.tensorrt_rows import in_pefts_format
from lmi_plugins.torch_engine.messages.requests import AdapterTensors, EngineOptions
from lmi_plugins.torch_engine.sequences.adapter import Adapter, AdapterWeights
from lmi_plugins.torch_engine.sequences.step_batch import Chunk

logger = logging.getLogger(__name__)

Source = Path | AdapterTensors


class AdapterStore:
    """The adapters by name.

    The most recently used are on the device, and more of them in main memory. An evicted adapter with a directory is
    read again on demand; one given as tensors is lost. Pinned adapters are never evicted, but leave a slot on the
    device for others. Only `read` may be called outside of the engine's thread.
    """

    def __init__(self, layers: LoraLayers, max_loras: int, max_cpu_loras: int, *, allow_pickle: bool = False) -> None:
        self._layers = layers
        self._allow_pickle = allow_pickle
        self._max_cpu_loras = max_cpu_loras
        self._by_name: dict[str, Adapter] = {}
        # Least recently used first; the same applies to the next attribute
        self._in_memory: OrderedDict[Adapter, None] = OrderedDict()
        self._slots: OrderedDict[int, int] = OrderedDict()  # from the adapter's serial number to its slot
        self._free_slots = list(range(max_loras))
        self._max_loras = max_loras
        self._pinned: set[str] = set()

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    @property
    def modules(self) -> dict[str, tuple[int, int]]:
        """The input and output sizes of each module that can be adapted."""
        return self._layers.modules

    def read(self, source: Source) -> AdapterWeights:
        """Return an adapter's weights; raise InvalidAdapter if they cannot be read or do not fit the model.

        Raise InvalidParameter for wrong rows of TensorRT-LLM's.
        """
        if isinstance(source, Path):
            weights = read_directory(source, allow_pickle=self._allow_pickle)
        else:
            weights = read_tensors(in_pefts_format(source, self.modules))
        self._layers.check(weights)
        return weights

    def add(self, name: str, source: Source, weights: AdapterWeights) -> None:
        """Add an adapter under a name; running sequences keep a previous one of that name."""
        if name in self._by_name:
            self._forget(self._by_name[name])
        adapter = Adapter(name, source if isinstance(source, Path) else None, weights)
        self._by_name[name] = adapter
        self._remember(adapter)
        if name in self._pinned:
            with suppress(InvalidAdapter):  # reported to the requests that need it
                self._load_pinned(adapter)

    def remove(self, name: str) -> None:
        """Remove an adapter; running sequences keep it. Raise AdapterNotFound if there is none."""
        self._forget(self.get(name))
        self._pinned.discard(name)

    def _forget(self, adapter: Adapter) -> None:
        del self._by_name[adapter.name]
        self._in_memory.pop(adapter, None)

    def pin(self, name: str, pinned: bool) -> None:
        """Pin an adapter to the device, or unpin it.

        Raise AdapterNotFound, or InvalidAdapter if pinned adapters would leave no slot for others.
        """
        adapter = self.get(name)
        if not pinned:
            self._pinned.discard(name)
            return
        if len(self._pinned | {name}) >= self._max_loras:
            raise InvalidAdapter(
                f"adapter {name} cannot be pinned: at most {self._max_loras - 1} can, so that other adapters can be "
                f"used too (option.max_loras={self._max_loras}). Pinned: {', '.join(sorted(self._pinned)) or 'none'}"
            )
        self._load_pinned(adapter)
        self._pinned.add(name)

    def pinned(self) -> set[Adapter]:
        """Return the pinned adapters, which keep a slot on the device."""
        return {self._by_name[name] for name in self._pinned}

    def _load_pinned(self, adapter: Adapter) -> None:
        """Put an adapter on the device. Raise InvalidAdapter if that fails."""
        try:
            if adapter.serial not in self._slots:
                self._load(adapter)
        except torch.OutOfMemoryError as error:
            raise InvalidAdapter(f"adapter {adapter.name}: {error}") from None

    def get(self, name: str) -> Adapter:
        """Return the adapter of that name and mark it as used; raise AdapterNotFound if there is none."""
        if name not in self._by_name:
            raise AdapterNotFound.of(name, self._by_name)
        adapter = self._by_name[name]
        if adapter in self._in_memory:
            self._in_memory.move_to_end(adapter)
        return adapter

    def begin(self, chunks: Items[Chunk]) -> None:
        """Set up the next forward passes for these chunks, after `prepare`."""
        if not self._slots:
            return  # no adapter has been on the device yet
        slots: list[int | None] = []
        lengths: list[int] = []
        for chunk in chunks:
            adapter = chunk.sequence.adapter
            slots.append(None if adapter is None else self._slots[adapter.serial])
            lengths.append(chunk.end - chunk.start)
        self._layers.begin(slots, lengths)

    def prepare(self, chunks: Items[Chunk]) -> dict[Adapter | None, str]:
        """Put the adapters of the chunks on the device; return those that fail, and why."""
        failed: dict[Adapter | None, str] = {}
        needed: dict[Adapter, None] = {}
        for chunk in chunks:
            if chunk.sequence.adapter is not None:
                needed[chunk.sequence.adapter] = None
        for adapter in needed:
            if adapter.serial in self._slots:
                self._slots.move_to_end(adapter.serial)
        for adapter in needed:
            if adapter.serial not in self._slots:
                try:
                    self._load(adapter, needed)
                except (InvalidAdapter, torch.OutOfMemoryError) as error:
                    failed[adapter] = f"adapter {adapter.name}: {error}"
        return failed

    def _load(self, adapter: Adapter, needed: Collection[Adapter] = ()) -> None:
        """Put an adapter on the device, replacing one that is neither pinned nor `needed` in the next step."""
        if (weights := adapter.weights) is None:
            assert adapter.directory is not None
            weights = adapter.weights = self.read(adapter.directory)
        if self._by_name.get(adapter.name) is adapter:
            self._remember(adapter)
        slot = self._free_slots.pop() if self._free_slots else self._slots.pop(self._to_evict(needed))
        try:
            self._layers.fill(slot, weights)
        except BaseException:
            self._free_slots.append(slot)
            raise
        self._slots[adapter.serial] = slot

    def _to_evict(self, needed: Collection[Adapter]) -> int:
        """Return the adapter to evict; a pinned one only if running sequences need all other slots."""
        running, pinned = ({each.serial for each in kept} for kept in (needed, self.pinned()))
        for kept in (running | pinned, running):
            if (found := next((serial for serial in self._slots if serial not in kept), None)) is not None:
                return found
        raise AssertionError("more adapters run than there are slots")

    def _remember(self, adapter: Adapter) -> None:
        self._in_memory[adapter] = None
        self._in_memory.move_to_end(adapter)
        excess = max(0, len(self._in_memory) - self._max_cpu_loras)
        for oldest in [each for each in self._in_memory if each.name not in self._pinned][:excess]:
            del self._in_memory[oldest]
            if oldest.directory is None:
                del self._by_name[oldest.name]
            else:
                oldest.weights = None


def require_store(store: AdapterStore | None) -> AdapterStore:
    """Return the store; raise AdapterNotFound if there is none."""
    if store is None:
        raise AdapterNotFound("this model does not support adapters: option.enable_lora is false")
    return store


def open_store(options: EngineOptions, model: PreTrainedModel, run_tokens: Callable[[int], object]) -> AdapterStore:
    """Return a store with the options' adapters; raise ConfigurationError for an invalid one, or leave it out."""
    layers = LoraLayers(model, options.max_loras, options.max_lora_rank, run_tokens)
    most = options.max_cpu_loras or options.max_loras
    store = AdapterStore(layers, options.max_loras, most, allow_pickle=options.allow_pickle)
    for name, directory in options.adapters.items():
        try:
            store.add(name, Path(directory), store.read(Path(directory)))
        except InvalidAdapter as error:
            if not options.leaves_out_adapters:
                raise ConfigurationError(f"adapter {name}: {error.message}") from None
            logger.error("the adapter %s could not be loaded again and was removed: %s", name, error.message)
    for name in store.names:
        if name in options.pinned_adapters:
            store.pin(name, True)
    return store
