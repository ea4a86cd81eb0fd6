"""LoRA adapters in TensorRT-LLM's format: a row of weights for each module, and a row of `lora_config` about it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from lmi_core.errors import InvalidParameter
from lmi_plugins.torch_engine.messages.requests import AdapterTensors, TensorData
from lmi_plugins.torch_engine.messages.tensors import TYPES

Modules = Mapping[str, tuple[int, int]]  # input and output size, by name
WEIGHTS, CONFIG = "lora_weights", "lora_config"  # in `AdapterTensors.tensors` and `.config`

MODULE_NAMES: Mapping[int, str] = {
    0: "attn_qkv",
    1: "attn_q",
    2: "attn_k",
    3: "attn_v",
    4: "attn_dense",
    5: "mlp_h_to_4h",
    6: "mlp_4h_to_h",
    7: "mlp_gate",
}
SUFFIXES: Mapping[int, tuple[str, ...]] = {  # names in transformers' models; the first that exists is used
    0: ("qkv_proj", "attn.c_attn", "query_key_value", "Wqkv"),
    1: ("q_proj",),
    2: ("k_proj",),
    3: ("v_proj",),
    4: ("o_proj", "attn.c_proj", "attention.dense", "self_attention.dense", "self_attn.dense", "out_proj"),
    5: ("gate_proj", "mlp.c_fc", "fc_in", "fc1", "dense_h_to_4h", "up_proj"),
    6: ("down_proj", "mlp.c_proj", "fc_out", "fc2", "dense_4h_to_h"),
    7: ("up_proj",),
}
QKV = 0
SEPARATE_QKV = (1, 2, 3)


class Row(NamedTuple):
    """A row of `lora_config`."""

    module_id: int
    layer: int
    rank: int


def in_pefts_format(source: AdapterTensors, modules: Modules) -> AdapterTensors:
    """Return an adapter with PEFT's names; raise InvalidParameter for a row that does not fit the model."""
    weights, rows = source.tensors.get(WEIGHTS), (source.config or {}).get(CONFIG)
    if weights is None or rows is None:
        return source
    tensors: dict[str, TensorData] = {}
    size = weights.shape[1] * TYPES[weights.dtype].itemsize
    for place, numbers in enumerate(rows):
        data = weights.data[place * size : (place + 1) * size]
        for name, tensor in _matrices(place, Row(*numbers), data, weights, modules):
            if name in tensors:
                raise InvalidParameter(
                    f"`lora_config` must name each module once. Given: {numbers} in row {place} again"
                )
            tensors[name] = tensor
    return AdapterTensors(tensors)


def _matrices(
    place: int, row: Row, data: bytes, weights: TensorData, modules: Modules
) -> Iterator[tuple[str, TensorData]]:
    """Yield a row's matrices by PEFT's names. A row is [rank, in], then [out, rank], then padding."""
    names = _find_modules(row.module_id, row.layer, modules)
    if not names or row.rank < 1:
        known = ", ".join(f"{number} ({name})" for number, name in MODULE_NAMES.items())
        raise InvalidParameter(
            f"`lora_config` must have rows of module id, layer and rank for modules of this model ({known})."
            f" Given: {list(row)} in row {place}"
        )
    ins, outs = modules[names[0]][0], [modules[name][1] for name in names]
    if row.rank * (ins + sum(outs)) > weights.shape[1]:
        raise InvalidParameter(
            f"`lora_weights` must have at least {row.rank * (ins + sum(outs))} numbers in row {place}, for rank "
            f"{row.rank}, {ins} inputs and {sum(outs)} outputs. Given: {weights.shape[1]}"
        )
    unit = row.rank * TYPES[weights.dtype].itemsize
    begin = ins * unit
    for name, out in zip(names, outs, strict=True):
        yield f"{name}.lora_A.weight", TensorData(weights.dtype, [row.rank, ins], data[: ins * unit])
        yield f"{name}.lora_B.weight", TensorData(weights.dtype, [out, row.rank], data[begin : begin + out * unit])
        begin += out * unit


def _find_modules(module_id: int, layer: int, names: Iterable[str]) -> list[str]:
    """Return the row's module, or query, key and value if these are separate; nothing if the model lacks it."""
    own = [name for name in names if _layer(name) == layer]
    found = _find(module_id, own)
    if found is not None:
        return [found]
    parts = [_find(part, own) for part in SEPARATE_QKV] if module_id == QKV else []
    return [part for part in parts if part is not None] if None not in parts else []


def _find(module_id: int, names: list[str]) -> str | None:
    for suffix in SUFFIXES.get(module_id, ()):
        for name in names:
            if name.endswith(f".{suffix}"):
                return name
    return None


def _layer(name: str) -> int | None:
    """Return the number of a module's layer, 3 in `model.layers.3.self_attn.q_proj`."""
    return next((int(part) for part in name.split(".") if part.isdigit()), None)
