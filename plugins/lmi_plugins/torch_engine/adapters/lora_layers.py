"""Low-rank deltas, added to the outputs of a model's linear modules; each token gets those of its own adapter."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from lmi_core.errors import InvalidAdapter
from lmi_plugins.torch_engine.sequences.adapter import AdapterWeights, LoraPair

PROBED_TOKENS = 3


class LoraLayer:
    """The deltas of one module, for all adapters on the device, each in the columns of its slot.

    One product serves a step with any number of adapters; for each token, the columns of other adapters are masked.
    """

    def __init__(self, module: torch.nn.Module, slots: int, rank: int) -> None:
        ins, outs = module_shape(module)
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        self._down = weight.new_zeros(ins, slots * rank)
        self._up = weight.new_zeros(slots * rank, outs)
        self._rank = rank
        self.slots: set[int] = set()  # slots with weights for this module

    def fill(self, slot: int, pair: LoraPair | None) -> None:
        """Put an adapter's matrices into the columns of its slot, or nothing if it has none for this module."""
        columns = slice(slot * self._rank, (slot + 1) * self._rank)
        self._down[:, columns] = 0
        self._up[columns] = 0
        self.slots.discard(slot)
        if pair is not None:
            columns = slice(columns.start, columns.start + pair.rank)
            self._down[:, columns] = pair.down
            self._up[columns] = pair.up
            self.slots.add(slot)

    def add(self, inputs: torch.Tensor, output: torch.Tensor, columns: slice, mask: torch.Tensor | None) -> None:
        """Add the deltas of inputs, [..., in], to output, [..., out], in place; mask: [tokens, columns], True hides."""
        inner = inputs.reshape(-1, inputs.shape[-1]) @ self._down[:, columns]
        if mask is not None:
            inner.masked_fill_(mask, 0)
        output.view(-1, output.shape[-1]).addmm_(inner, self._up[columns])


class LoraLayers:
    """The deltas of a model's modules. Modules that no adapter targets are left unchanged."""

    def __init__(self, model: PreTrainedModel, slots: int, rank: int, run_tokens: Callable[[int], object]) -> None:
        """Find the modules by `run_tokens`, which runs the model over a number of tokens; see ModelRunner."""
        self._rank = rank
        self._slots = slots
        self._modules = _find_modules(model, run_tokens)
        self._head: torch.nn.Module | None = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        self._named = dict(model.named_modules())
        self._device = model.device
        self._layers: dict[str, LoraLayer] = {}
        self._active: set[int] = set()  # slots used by the running step
        self._columns = slice(0)
        self._mask: torch.Tensor | None = None

    @property
    def modules(self) -> dict[str, tuple[int, int]]:
        """The input and output sizes of each module that can be adapted."""
        return {name: module_shape(module) for name, module in self._modules.items()}

    def check(self, weights: AdapterWeights) -> None:
        """Raise InvalidAdapter for weights that do not fit the model."""
        for name, pair in weights.items():
            module = self._modules.get(name)
            if module is None:
                raise InvalidAdapter(self._why_not(name))
            ins, outs = module_shape(module)
            if (pair.down.shape[0], pair.up.shape[1]) != (ins, outs):
                raise InvalidAdapter(
                    f"{name}: the model's layer has {ins} inputs and {outs} outputs, but the adapter's has "
                    f"{pair.down.shape[0]} and {pair.up.shape[1]}"
                )
            if pair.rank > self._rank:
                raise InvalidAdapter(
                    f"{name} must have a rank of at most option.max_lora_rank, {self._rank}. Given: {pair.rank}"
                )
            dtype = self.dtype_of(name)
            if not (pair.down.to(dtype).isfinite().all() and pair.up.to(dtype).isfinite().all()):
                raise InvalidAdapter(f"{name} has weights that are not finite in {dtype}")

    def _why_not(self, name: str) -> str:
        """Return why a module cannot be adapted."""
        module = self._named.get(name)
        if module is None:
            return f"the model has no layer {name}"
        if module is self._head:
            return f"LoRA on the output layer, {name}, is not supported on the torch engine"
        return (
            f"LoRA on {name} is not supported on the torch engine: it is not a linear layer that every token passes "
            f"exactly once"
        )

    def dtype_of(self, name: str) -> torch.dtype:
        weight = self._modules[name].weight
        assert isinstance(weight, torch.Tensor)
        return weight.dtype

    @torch.inference_mode()
    def fill(self, slot: int, weights: AdapterWeights) -> None:
        """Put an adapter's weights into a slot, replacing any others."""
        for name in weights.keys() - self._layers.keys():
            self._layers[name] = self._add_layer(self._modules[name])
        for name, layer in self._layers.items():
            if name in weights or slot in layer.slots:
                layer.fill(slot, weights.get(name))

    def begin(self, slots: Items[int | None], lengths: Items[int]) -> None:
        """Prepare for forward passes over chunks of these lengths, each with the adapter in a slot, if any."""
        self._active = {slot for slot in slots if slot is not None}
        self._mask = None
        if not self._active:
            return
        first, last = min(self._active), max(self._active)
        self._columns = slice(first * self._rank, (last + 1) * self._rank)
        if len(self._active) > 1 or None in slots:
            owners = [-1 if slot is None else slot for slot in slots]
            rows = torch.repeat_interleave(torch.tensor(owners), torch.tensor(lengths)).to(self._device)
            columns = torch.arange(self._columns.start, self._columns.stop, device=self._device) // self._rank
            self._mask = rows[:, None] != columns

    def _add_layer(self, module: torch.nn.Module) -> LoraLayer:
        layer = LoraLayer(module, self._slots, self._rank)

        def add(_: torch.nn.Module, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
            if not self._active.isdisjoint(layer.slots):
                layer.add(inputs[0], output, self._columns, self._mask)

        module.register_forward_hook(add)
        return layer


def module_shape(module: torch.nn.Module) -> tuple[int, int]:
    """Return the input and output sizes of a module."""
    weight = module.weight
    assert isinstance(weight, torch.Tensor)
    first, second = weight.shape
    return (first, second) if isinstance(module, Conv1D) else (second, first)


@torch.inference_mode()
def _find_modules(model: PreTrainedModel, run_tokens: Callable[[int], object]) -> dict[str, torch.nn.Module]:
    """Return the linear modules that all tokens of a step pass once, in order; this excludes those of experts."""
    linear = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear | Conv1D)}
    passed: dict[str, list[int]] = {name: [] for name in linear}
    for name, inputs in calls_of(linear, lambda: run_tokens(PROBED_TOKENS)):
        passed[name].append(inputs.numel() // inputs.shape[-1])
    return {name: module for name, module in linear.items() if passed[name] == [PROBED_TOKENS]}


def calls_of(modules: Mapping[str, torch.nn.Module], run: Callable[[], object]) -> list[tuple[str, torch.Tensor]]:
    """Return the calls of modules in a forward pass, in order, with their inputs."""
    calls: list[tuple[str, torch.Tensor]] = []

    def noting(name: str) -> Callable[..., None]:
        return lambda _, inputs: calls.append((name, inputs[0]))

    hooks = [module.register_forward_pre_hook(noting(name)) for name, module in modules.items()]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return calls
