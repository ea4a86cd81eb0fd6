"""The LoRA adapters that requests bring, by task id."""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

from lmi_core.errors import InvalidAdapter, InvalidParameter
from lmi_core.generation.tensors import ELEMENT_SIZES, Tensor
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.requests import AdapterTensors, TensorData
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest
from lmi_plugins.trtllm.requests.translation import TENSOR_TYPES

Modules = Mapping[str, tuple[int, int]]  # input and output size, by name
PREFIX = "lora_task_id="

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


def find_modules(module_id: int, layer: int, names: Iterable[str]) -> list[str]:
    """Return the module that is meant, or query, key and value if they are separate; none if the model has no such."""
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
            f"`lora_config` must have rows of module id, layer and rank for modules of this model ({known})."
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


class LoraCache:
    """Adapters by task id, in the engine's own store, which evicts the least recently used one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._digests: dict[str, bytes] = {}  # of the adapters loaded under each name, even if evicted since

    def adapter(self, request: InferenceRequest) -> str | None:
        """Return the name of the request's adapter, loaded if the request brings it; raise InvalidParameter."""
        if "lora_task_id" not in request.tensors:
            return None
        name = f"{PREFIX}{request.tensors['lora_task_id'].array().item()}"
        if "lora_weights" in request.tensors:
            self._load(name, request.tensors["lora_weights"], request.tensors["lora_config"])
        elif name not in self._names:
            raise InvalidParameter(
                "`lora_task_id` must be cached, or be given with `lora_weights` and `lora_config`. Given: "
                f"{name.removeprefix(PREFIX)}, cached: {', '.join(map(_task_id, self._names)) or 'none'}"
            )
        return name

    @property
    def _names(self) -> list[str]:
        return [name for name in self._engine.adapters.names if name.startswith(PREFIX)]

    def _load(self, name: str, weights: Tensor, config: Tensor) -> None:
        """Load an adapter unless it is already loaded with the same weights."""
        digest = sha256(weights.dtype.encode() + weights.data + config.data).digest()
        if name in self._names and self._digests.get(name) == digest:
            return
        source = adapter_tensors(weights, config, self._engine.adapters.modules)
        try:
            self._engine.load_adapter(name, source)
        except InvalidAdapter as error:
            raise InvalidParameter(f"`lora_weights` cannot be used: {error.message}") from None
        self._digests = {known: self._digests[known] for known in self._names if known != name} | {name: digest}


def _task_id(name: str) -> str:
    return name.removeprefix(PREFIX)
