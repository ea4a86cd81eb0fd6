"""The modules of a model that a row of `lora_config` means.

The ids are TensorRT-LLM's: https://nvidia.github.io/TensorRT-LLM/advanced/lora.html#lora-module-id-mapping. In a gated
MLP, 5 is what the activation goes over and 7 what it gates, as NVIDIA's converter of adapters has it.
"""

from collections.abc import Iterable, Mapping

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
SUFFIXES: Mapping[int, tuple[str, ...]] = {  # what transformers' models call them; the first that there is counts
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
