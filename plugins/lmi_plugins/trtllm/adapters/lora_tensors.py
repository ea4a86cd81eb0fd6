"""Conversion of LoRA adapters from TensorRT-LLM's form, a row for each module and layer, to the torch engine's."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lmi_core.errors import InvalidParameter
from lmi_core.generation.tensors import ELEMENT_SIZES, Tensor
from lmi_plugins.torch_engine.messages.requests import AdapterTensors, TensorData
from lmi_plugins.trtllm.adapters.lora_modules import MODULE_NAMES, find_modules
from lmi_plugins.trtllm.requests.translation import TENSOR_TYPES

Modules = Mapping[str, tuple[int, int]]  # by name: how many numbers each takes and gives


class Row(NamedTuple):
    """A row of `lora_config`."""

    module_id: int
    layer: int
    rank: int


def adapter_tensors(weights: Tensor, config: Tensor, modules: Modules) -> AdapterTensors:
    """Return an adapter for the torch engine; raise InvalidParameter for a row that does not fit the model."""
    tensors: dict[str, TensorData] = {}
    size = weights.shape[1] * ELEMENT_SIZES[weights.dtype]
    for place, numbers in enumerate(config.array().tolist()):
        data = weights.data[place * size : (place + 1) * size]
        for name, tensor in _matrices(place, Row(*numbers), data, weights, modules):
            if name in tensors:
                raise InvalidParameter(
                    f"`lora_config` must name each module once. Given: {numbers} in row {place} again"
                )
            tensors[name] = tensor
    return AdapterTensors(tensors)


def _matrices(place: int, row: Row, data: bytes, weights: Tensor, modules: Modules) -> Iterator[tuple[str, TensorData]]:
    """Yield a row's matrices by PEFT's names. A row is [rank, in], then [out, rank], then padding."""
    names = find_modules(row.module_id, row.layer, modules)
    if not names or row.rank < 1:
        known = ", ".join(f"{number} ({name})" for number, name in MODULE_NAMES.items())
        raise InvalidParameter(
            f"`lora_config` must have rows of module id, layer and rank for modules of this model, of {known}."
            f" Given: {list(row)} in row {place}"
        )
    ins, outs = modules[names[0]][0], [modules[name][1] for name in names]
    if row.rank * (ins + sum(outs)) > weights.shape[1]:
        raise InvalidParameter(
            f"`lora_weights` must have at least {row.rank * (ins + sum(outs))} numbers in row {place}, for rank "
            f"{row.rank}, {ins} inputs and {sum(outs)} outputs. Given: {weights.shape[1]}"
        )
    dtype, unit = TENSOR_TYPES[weights.dtype], row.rank * ELEMENT_SIZES[weights.dtype]
    begin = ins * unit
    for name, out in zip(names, outs, strict=True):
        yield f"{name}.lora_A.weight", TensorData(dtype, [row.rank, ins], data[: ins * unit])
        yield f"{name}.lora_B.weight", TensorData(dtype, [out, row.rank], data[begin : begin + out * unit])
        begin += out * unit
