"""Attention of models that do not accept an attention function, or call it for a layer more than once or with a mask:
their modules call the running step instead.

transformers has no public name for these parts of Falcon, GPT-J, CodeGen, GPT-Neo, GPT-NeoX-Japanese, BLOOM, MPT,
XGLM, OpenAI GPT, DiffLlama, Doge, Zamba and HRM:
https://github.com/huggingface/transformers/blob/v5.0.0/src/transformers/models/falcon/modeling_falcon.py
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import frexp
from typing import Any

import torch
from torch.nn.functional import pad, softplus
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from lmi_plugins.torch_engine.model.attention import AttentionOptions, current_step

Attend = Callable[..., Any]


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


def _falcon(
    slopes: torch.Tensor | None, module: Any, hidden: torch.Tensor, *_: Any, position_embeddings: Any, **__: Any
) -> Any:
    fused = module.query_key_value(hidden)
    if module.new_decoder_architecture:  # transformers repeats the keys and values for each query head
        groups = fused.view(*hidden.shape[:2], module.num_kv_heads, -1, module.head_dim)
        split = groups[..., :-2, :].flatten(2, 3), groups[..., -2, :], groups[..., -1, :]
    else:
        split = module._split_heads(fused)
    query, key, value = (states.transpose(1, 2) for states in split)
    if slopes is None:
        query, key = apply_rotary_pos_emb(query, key, *position_embeddings)  # type: ignore[no-untyped-call]
    options = AttentionOptions(module.inv_norm_factor, slopes=slopes)
    output = current_step().attend(module.layer_idx, query, key, value, options)
    return module.dense(output.flatten(2)), None


def _falcon_slopes(model: PreTrainedModel) -> torch.Tensor | None:
    """Return ALiBi's slopes, which Falcon scales like the logits, or None for Falcon with rotary embeddings.

    Their products with positions are rounded to bfloat16, as in transformers.
    """
    if not model.config.alibi:
        return None
    heads = model.config.num_attention_heads
    alibi = build_alibi_tensor(torch.ones(1, 2, device=model.device), heads, torch.float32)
    return (alibi[:, 0, 1] * _falcon_scale(model)).bfloat16()


def _falcon_scale(model: PreTrainedModel) -> float:
    return float((model.config.hidden_size // model.config.num_attention_heads) ** -0.5)


def _bloom(slopes: torch.Tensor, module: Any, hidden: torch.Tensor, residual: torch.Tensor, *_: Any, **__: Any) -> Any:
    query, key, value = module._reshape(module.query_key_value(hidden))
    options = AttentionOptions(module.inv_norm_factor, slopes=slopes)
    output = current_step().attend(module.layer_idx, query, key, value, options)
    return residual + module.dense(output.flatten(2)), None


def _mpt(slopes: torch.Tensor, module: Any, hidden: torch.Tensor, *_: Any, **__: Any) -> Any:
    fused = module.Wqkv(hidden)
    if module.clip_qkv:
        fused = fused.clamp(-module.clip_qkv, module.clip_qkv)
    options = AttentionOptions(module.softmax_scale, slopes=slopes)
    return module.out_proj(_attend_by_heads(module.layer_idx, module.n_heads, fused.chunk(3, 2), options)), None


def _mpt_model(
    module: Any, input_ids: torch.Tensor | None = None, *, inputs_embeds: torch.Tensor | None = None, **_: Any
) -> Any:
    """Run the layers without a mask; the model's own method requires one."""
    hidden = module.wte(input_ids) if inputs_embeds is None else inputs_embeds
    for block in module.blocks:
        hidden, _ = block(hidden, None, None)
    return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=module.norm_f(hidden))


def _xglm(module: Any, hidden: torch.Tensor, *_: Any, **__: Any) -> Any:
    states = [project(hidden) for project in (module.q_proj, module.k_proj, module.v_proj)]
    options = AttentionOptions(module.scaling)
    return module.out_proj(_attend_by_heads(module.layer_idx, module.num_heads, states, options)), None


def _openai_gpt_model(
    module: Any,
    input_ids: torch.Tensor | None = None,
    *,
    position_ids: torch.Tensor,
    inputs_embeds: torch.Tensor | None = None,
    **_: Any,
) -> Any:
    """Run the layers with the running step; their attention's class, `Attention`, has no layer number."""
    hidden = module.tokens_embed(input_ids) if inputs_embeds is None else inputs_embeds
    hidden = hidden + module.positions_embed(position_ids)
    for layer, block in enumerate(module.h):
        states = block.attn.c_attn(hidden).chunk(3, 2)
        output = _attend_by_heads(layer, block.attn.n_head, states, AttentionOptions())
        hidden = block.ln_1(hidden + block.attn.c_proj(output))
        hidden = block.ln_2(hidden + block.mlp(hidden))
    return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden)


def _diffllama(module: Any, *, hidden_states: torch.Tensor, position_embeddings: Any, **_: Any) -> Any:
    """Attend once to both halves of the value heads; transformers attends to one after the other."""
    projections = module.q_proj, module.k_proj, module.v_proj
    query, key, value = (
        each(hidden_states).unflatten(2, (-1, module.head_dim)).transpose(1, 2) for each in projections
    )
    query, key = apply_rotary_pos_emb(query, key, *position_embeddings)  # type: ignore[no-untyped-call]
    value = torch.cat([half.repeat(1, 2, 1, 1) for half in value.chunk(2, 1)], 3)
    output = current_step().attend(module.layer_idx, query, key, value, AttentionOptions(module.scaling))
    pairs = (module.lambda_q1, module.lambda_k1), (module.lambda_q2, module.lambda_k2)
    first, second = ((left * right).sum(dtype=torch.float32).exp().to(output.dtype) for left, right in pairs)
    positive, negative = output.chunk(2, 2)
    output = module.groupnorm(positive - (first - second + module.lambda_init) * negative)
    return module.o_proj(((1 - module.lambda_init) * output).flatten(2)), None


def _doge(module: Any, *, hidden_states: torch.Tensor, position_embeddings: Any, **_: Any) -> Any:
    """Attend with a bias for each key, which depends on its token's values.

    The bias is the product of another part of the key with 1; zeros fill it up to a size that is fast to compute.
    """
    values = module.v_proj(hidden_states)
    query, key, value = (
        states.unflatten(2, (-1, module.head_dim))
        for states in (module.q_proj(hidden_states), module.k_proj(hidden_states), values)
    )
    query, key, value = (states.transpose(1, 2) for states in (module.q_norm(query), module.k_norm(key), value))
    query, key = apply_rotary_pos_emb(query, key, *position_embeddings)  # type: ignore[no-untyped-call]
    bias = (module.A * softplus(module.dt_proj(values))).exp().transpose(1, 2)[..., None]
    one = torch.ones_like(query[..., :1]) / module.scaling
    query, key = (torch.cat([states, pad(part, (0, 7))], 3) for states, part in ((query, one), (key, bias)))
    options = AttentionOptions(module.scaling, module.config.sliding_window)
    return module.o_proj(current_step().attend(module.layer_idx, query, key, value, options).flatten(2)), None


def _zamba(module: Any, *arguments: Any, layer_idx: int, **options: Any) -> Any:
    """Attend as the layer of the call, because Zamba's modules have no layer number."""
    module.layer_idx = layer_idx
    return type(module).forward(module, *arguments, layer_idx=layer_idx, **options)


def _hrm_text(module: Any, *arguments: Any, cycle_offset: int, **options: Any) -> Any:
    """Attend as the layer of the call, because the model calls each module in several cycles, as in a deeper model."""
    module.layer_idx += cycle_offset
    try:
        return type(module).forward(module, *arguments, **options)
    finally:
        module.layer_idx -= cycle_offset


def _attend_by_heads(layer: int, heads: int, states: Iterable[torch.Tensor], options: AttentionOptions) -> torch.Tensor:
    """Return the output given query, key and value; all: [1, tokens, heads * size]."""
    query, key, value = (each.view(*each.shape[:2], heads, -1).transpose(1, 2) for each in states)
    return current_step().attend(layer, query, key, value, options).flatten(2)


def _xglm_positions(module: Any, positions: torch.Tensor, *_: Any) -> torch.Tensor:
    """Return the embeddings without replacing the table for a long step, because captured steps read it."""
    table: torch.Tensor = module.weights
    return table[positions + module.offset]


REPLACED: dict[str, tuple[str, Attend]] = {  # the method that is replaced, by the module's class
    "GPTJAttention": ("_attn", _attend_as_gptj),
    "CodeGenAttention": ("_attn", _attend_as_gptj),
    "GPTNeoSelfAttention": ("_attn", _attend_as_gpt_neo),
    "GPTNeoXJapaneseAttention": ("_attn", _attend_as_gpt_neox),
    "FalconAttention": ("forward", _falcon),
    "BloomAttention": ("forward", _bloom),
    "MptAttention": ("forward", _mpt),
    "MptModel": ("forward", _mpt_model),
    "XGLMAttention": ("forward", _xglm),
    "XGLMSinusoidalPositionalEmbedding": ("forward", _xglm_positions),
    "OpenAIGPTModel": ("forward", _openai_gpt_model),
    "DiffLlamaAttention": ("forward", _diffllama),
    "DogeAttention": ("forward", _doge),
    "ZambaAttention": ("forward", _zamba),
    "Zamba2Attention": ("forward", _zamba),
    "HrmTextAttention": ("forward", _hrm_text),
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
        elif attend is _mpt:
            alibi = build_mpt_alibi_tensor(module.n_heads, 2, device=model.device)  # type: ignore[no-untyped-call]
            attend = partial(attend, -alibi[:, 0, 0])
        elif attend is _falcon:
            attend = partial(attend, _falcon_slopes(model))
        setattr(module, method, partial(attend, module))


def restore_own_attention(model: PreTrainedModel) -> None:
    for module, method, _ in _replaceable(model):
        delattr(module, method)


def _replaceable(model: PreTrainedModel) -> Iterator[tuple[Any, str, Attend]]:
    for module in model.modules():
        if (found := REPLACED.get(type(module).__name__)) is None:
            continue
        if found[1] is _falcon and model.config.alibi and frexp(_falcon_scale(model))[0] != 0.5:
            return  # only a power of two does not change how slopes are rounded
        yield module, *found
