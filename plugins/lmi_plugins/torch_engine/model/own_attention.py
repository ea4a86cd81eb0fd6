"""Attention of models that do not accept an attention function: their modules call the step that runs instead of their
own.

transformers has no public name for these parts of Falcon, GPT-J, CodeGen, GPT-Neo, GPT-NeoX-Japanese and BLOOM:
https://github.com/huggingface/transformers/blob/v5.0.0/src/transformers/models/falcon/modeling_falcon.py
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb

from lmi_plugins.torch_engine.model.attention import AttentionOptions, current_step

Attend = Callable[..., tuple[torch.Tensor, None]]


def _attend_as_gptj(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any) -> Any:
    return _attend(module.layer_idx, query, key, value, 1 / module.scale_attn)


def _attend_as_gpt_neo(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any) -> Any:
    window = module.config.window_size if module.attention_type == "local" else None
    return _attend(module.layer_id, query, key, value, 1.0, window)


def _attend_as_gpt_neox(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any) -> Any:
    return _attend(module.layer_idx, query, key, value, 1 / module.norm_factor)


def _attend(
    layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, window: int | None = None
) -> tuple[torch.Tensor, None]:
    query, key = query.to(value.dtype), key.to(value.dtype)  # rotated in float32
    output = current_step().attend(layer, query, key, value, AttentionOptions(scale, window))
    return output.transpose(1, 2), None


def _falcon(module: Any, hidden: torch.Tensor, *_: Any, position_embeddings: Any, **__: Any) -> Any:
    fused = module.query_key_value(hidden)
    if module.new_decoder_architecture:  # transformers repeats the keys and values for each query head
        groups = fused.view(*hidden.shape[:2], module.num_kv_heads, -1, module.head_dim)
        split = groups[..., :-2, :].flatten(2, 3), groups[..., -2, :], groups[..., -1, :]
    else:
        split = module._split_heads(fused)
    query, key, value = (states.transpose(1, 2) for states in split)
    query, key = apply_rotary_pos_emb(query, key, *position_embeddings)  # type: ignore[no-untyped-call]
    output = current_step().attend(module.layer_idx, query, key, value, AttentionOptions(module.head_dim**-0.5))
    return module.dense(output.flatten(2)), None


def _bloom(slopes: torch.Tensor, module: Any, hidden: torch.Tensor, residual: torch.Tensor, *_: Any, **__: Any) -> Any:
    query, key, value = module._reshape(module.query_key_value(hidden))
    options = AttentionOptions(module.inv_norm_factor, slopes=slopes)
    output = current_step().attend(module.layer_idx, query, key, value, options)
    return residual + module.dense(output.flatten(2)), None


REPLACED: dict[str, tuple[str, Attend]] = {  # the method that is replaced, by the module's class
    "GPTJAttention": ("_attn", _attend_as_gptj),
    "CodeGenAttention": ("_attn", _attend_as_gptj),
    "GPTNeoSelfAttention": ("_attn", _attend_as_gpt_neo),
    "GPTNeoXJapaneseAttention": ("_attn", _attend_as_gpt_neox),
    "FalconAttention": ("forward", _falcon),
    "BloomAttention": ("forward", _bloom),
}


def has_own_attention(model: PreTrainedModel) -> bool:
    """Return whether the model's attention is replaced here."""
    return any(True for _ in _replaceable(model))


def replace_own_attention(model: PreTrainedModel) -> None:
    for module, method, attend in _replaceable(model):
        if attend is _bloom:
            # How much its attention grows from one token to the next, [heads].
            alibi = build_alibi_tensor(torch.ones(1, 2, device=model.device), module.num_heads, torch.float32)
            attend = partial(attend, alibi[:, 0, 1])
        setattr(module, method, partial(attend, module))


def restore_own_attention(model: PreTrainedModel) -> None:
    for module, method, _ in _replaceable(model):
        delattr(module, method)


def _replaceable(model: PreTrainedModel) -> Iterator[tuple[Any, str, Attend]]:
    if getattr(model.config, "alibi", False):  # Falcon's variant, whose rounding is unique
        return
    for module in model.modules():
        if (found := REPLACED.get(type(module).__name__)) is not None:
            yield module, *found
