"""The architectures that the sweep serves: a tiny model of each, and the path that it takes."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoConfig

from lmi_plugins.torch_engine.model.loading import text_factory
from tests.plugins.torch_engine.tiny_models import CONTEXT, LLAMA, VOCABULARY, WINDOW

MAX_PARAMETERS = 3_000_000

# What configurations call their sizes. Each gets those that it has.
SIZES: dict[str, Any] = {
    **LLAMA,
    "pad_token_id": 0,
    "head_dim": 8,
    "sliding_window": WINDOW,
    **{"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT, "rotary_dim": 4},
    **{"d_model": 32, "n_layers": 2, "n_heads": 4, "num_layers": 2, "num_heads": 4, "ffn_hidden_size": 48},
    **{"num_experts": 2, "num_local_experts": 2, "n_routed_experts": 2, "n_shared_experts": 1},
    **{"num_experts_per_tok": 1, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1},
    **{"q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8},
    **{"state_size": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 2},
    **{"linear_key_head_dim": 8, "linear_value_head_dim": 8},
}
LATENT = {"num_key_value_heads": 4}
INDEXED = {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 8}
HYBRID = {"layer_types": ["linear_attention", "full_attention"]}
MAMBA_HEADS = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 4, "mamba_n_groups": 1}
GEMMA_4 = {
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 8,
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "global_head_dim": 16,
}
# What else some need: to be tiny, or to be valid.
CHANGES: dict[str, dict[str, Any]] = {
    "axk1": LATENT,
    "axk2": {**LATENT, **INDEXED},
    "bamba": {**MAMBA_HEADS, "attn_layer_indices": [1], "attn_rotary_emb": 4},
    "codegen": {"head_dim": 8, "n_ctx": CONTEXT},
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "deepseek_v32": {**LATENT, **INDEXED},
    "falcon_h1": {**MAMBA_HEADS, "mamba_d_ssm": 64},
    "gemma3n_text": {
        "vocab_size_per_layer_input": VOCABULARY,
        "hidden_size_per_layer_input": 8,
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "intermediate_size": [48] * 4,
        "activation_sparsity_pattern": [0.0] * 4,
        "laurel_rank": 8,
        "altup_correct_scale": False,  # whose random weights would be zeros
    },
    "gemma4_text": GEMMA_4,
    "glm4_moe_lite": LATENT,
    "glm_moe_dsa": {**LATENT, **INDEXED},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": WINDOW},
    "granitemoehybrid": {**MAMBA_HEADS, "layer_types": ["mamba", "attention"]},
    "hrm_text": {"num_hidden_layers": 1},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 0, "mamba_d_state": 4, "use_mamba_kernels": False},
    "kimi_linear": {**LATENT, **HYBRID},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba2": {"num_heads": 4, "head_dim": 16, "expand": 2, "n_groups": 1},
    "minicpm3": LATENT,
    "minimax": {**HYBRID, "block_size": 16},
    "moshi": {"sliding_window": CONTEXT},
    "phimoe": {"num_experts_per_tok": 2},
    "qwen3_5_moe_text": {"layer_types": ["full_attention", "linear_attention"], "shared_expert_intermediate_size": 16},
    "qwen3_5_text": {"layer_types": ["full_attention", "linear_attention"]},
    "qwen3_next": {"layer_types": ["full_attention", "linear_attention"]},
    "youtu": LATENT,
    "zamba": {**LATENT, "num_hidden_layers": 4, "layer_types": ["mamba", "hybrid"] * 2, "mamba_d_state": 4},
    "zamba2": {
        **LATENT,
        "num_hidden_layers": 4,
        "layer_types": ["mamba", "hybrid"] * 2,
        "hybrid_layer_ids": [1, 3],
        "mamba_d_state": 4,
        "mamba_headdim": 16,
        "n_mamba_heads": 4,
        "mamba_ngroups": 1,
        "num_mem_blocks": 1,
    },
}

EYE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
QWEN_EYE = {
    "depth": 1,
    "embed_dim": 32,
    "hidden_size": 32,
    "num_heads": 2,
    "intermediate_size": 48,
    "out_hidden_size": 32,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0],
}
QWEN_TEXT = {
    **LLAMA,
    "head_dim": 8,
    "rope_parameters": {"mrope_section": [1, 1, 2], "rope_type": "default", "rope_theta": 10000.0},
}
QWEN_IDS = {"image_token_id": 5, "video_token_id": 6, "vision_start_token_id": 7, "vision_end_token_id": 8}

CLIP = {**EYE, "model_type": "clip_vision_model"}
TEXT_OF_LLAMA = {**LLAMA, "model_type": "llama"}
# Models of images and texts: their whole configurations.
WHOLE: dict[str, dict[str, Any]] = {
    "gemma3": {
        "text_config": {**LLAMA, "head_dim": 8, "sliding_window": WINDOW},
        "vision_config": EYE,
        "mm_tokens_per_image": 1,
    },
    "gemma4": {
        "text_config": {**LLAMA, "head_dim": 8, "sliding_window": WINDOW, "pad_token_id": 0, **GEMMA_4},
        "vision_config": {**EYE, "num_key_value_heads": 2, "head_dim": 16},
        "audio_config": None,
        **dict.fromkeys(("image_token_id", "video_token_id", "audio_token_id"), 5),
    },
    "glm4v": {
        "text_config": {**QWEN_TEXT, "pad_token_id": 0},
        "vision_config": {**QWEN_EYE, "image_size": 28, "patch_size": 14},
        "image_token_id": 5,
    },
    "idefics3": {"text_config": TEXT_OF_LLAMA, "vision_config": EYE, "image_token_id": 5, "scale_factor": 1},
    "internvl": {
        "text_config": {**LLAMA, "model_type": "qwen2"},
        "vision_config": {**EYE, "image_size": [28, 28], "patch_size": [14, 14]},
        "image_token_id": 5,
    },
    "llama4": {
        "text_config": {
            **LLAMA,
            "head_dim": 8,
            "intermediate_size_mlp": 48,
            "num_local_experts": 2,
            "interleave_moe_layer_step": 2,
        },
        "vision_config": {
            **EYE,
            "vision_output_dim": 32,
            "projector_input_dim": 32,
            "projector_output_dim": 32,
            "pixel_shuffle_ratio": 1.0,
        },
    },
    "llava": {"text_config": TEXT_OF_LLAMA, "vision_config": CLIP, "image_token_index": 5},
    "llava_next": {"text_config": TEXT_OF_LLAMA, "vision_config": CLIP, "image_token_index": 5},
    "mistral3": {
        "text_config": {**LLAMA, "model_type": "mistral", "head_dim": 8},
        "vision_config": {**EYE, "model_type": "pixtral", "head_dim": 16},
        "image_token_index": 5,
    },
    "mllama": {
        "text_config": {**LLAMA, "cross_attention_layers": [1], "pad_token_id": 0},
        "vision_config": {
            **EYE,
            "num_global_layers": 1,
            "max_num_tiles": 1,
            "vision_output_dim": 64,
            "intermediate_layers_indices": [0],
            "supported_aspect_ratios": [[1, 1]],
        },
        "image_token_index": 5,
    },
    "qwen2_5_vl": {"text_config": QWEN_TEXT, "vision_config": QWEN_EYE, **QWEN_IDS},
    "qwen2_vl": {"text_config": QWEN_TEXT, "vision_config": QWEN_EYE, **QWEN_IDS},
    "qwen3_5": {
        "text_config": {
            **LLAMA,
            "head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            **HYBRID,
        },
        "vision_config": {**QWEN_EYE, "deepstack_visual_indexes": []},
        **QWEN_IDS,
    },
    "qwen3_vl": {"text_config": QWEN_TEXT, "vision_config": QWEN_EYE, **QWEN_IDS},
    "qwen3_vl_moe": {
        "text_config": {**QWEN_TEXT, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16},
        "vision_config": QWEN_EYE,
        **QWEN_IDS,
    },
    "smolvlm": {"text_config": TEXT_OF_LLAMA, "vision_config": EYE, "image_token_id": 5, "scale_factor": 1},
}
FIRST_ID = 10  # of prompts: those below stand for images

PAGE = Path("docs/reference/models.md")  # names those that are tested, by their path


def _listed(row: str) -> list[str]:
    (line,) = (line for line in PAGE.read_text().splitlines() if line.startswith(f"| {row}"))
    return re.findall(r"`([^`]+)`", line)


PAGED = _listed("batches over a paged cache")
BY_ROW = _listed("one sequence after another")


def new_model(model_type: str, **changes: Any) -> Any:
    """Return a tiny model with random weights, and changes of its configuration."""
    config = AutoConfig.for_model(model_type, **(WHOLE.get(model_type) or _sizes(model_type)) | changes)
    factory = text_factory(config)
    if model_type in WHOLE:
        from transformers import AutoModelForImageTextToText

        factory = AutoModelForImageTextToText
    with torch.device("meta"):
        number = factory.from_config(config).num_parameters()
    assert number < MAX_PARAMETERS, f"{model_type} has {number} parameters"
    torch.manual_seed(0)
    return factory.from_config(config)


def save_architecture(directory: Path, model_type: str) -> None:
    """Save a tiny model with random weights, which are spread widely enough that no choice depends on rounding."""
    model = new_model(model_type)
    if model_type in WHOLE:  # their text model does not read the range of initial weights
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() > 1:
                    weight.normal_(0, 0.3)
    for each in (model.config, model.config.get_text_config(), model.generation_config):
        each.eos_token_id = None
    model.generation_config.pad_token_id = 0
    model.save_pretrained(directory)


def _sizes(model_type: str) -> dict[str, Any]:
    configuration = CONFIG_MAPPING[model_type]
    known = {field.name for field in dataclasses.fields(configuration)} | set(configuration.attribute_map)
    changes = CHANGES.get(model_type, {})
    sizes = {name: value for name, value in SIZES.items() if name in known or name in ("vocab_size", "pad_token_id")}
    return {**sizes, **changes, "vocab_size": VOCABULARY}
