"""Models of the most common layout whose files alone show that they can be loaded. Imports no torch.

A trial (`dry_run.py`) imports PyTorch and transformers' models, which takes seconds. It is left out only if each key of
config.json is known to be harmless, and the weights have exactly the names and shapes that transformers looks for.
"""

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from lmi_core.host.memory import free_main_memory
from lmi_core.inspection.checkpoint import Checkpoint, read_checkpoint
from lmi_core.inspection.layers import MODULES
from lmi_core.inspection.model_folder import CONFIG, inspect_tokenizer, wrong_files
from lmi_core.inspection.pickles import pickled_adapter
from lmi_core.texts.json_files import read_json
from lmi_plugins.torch_engine.messages.requests import EngineOptions

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "max_position_embeddings"),
)
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
TYPES = {"F32", "F16", "BF16"}
WIDTH = 4  # bytes of a number in the widest of these types, and in the widest of option.dtype
HARMLESS: dict[str, tuple[object, ...]] = {  # values
    "attention_bias": (False,),
    "dtype": ("float32", "float16", "bfloat16"),
    "hidden_act": ("silu",),
    "mlp_bias": (False,),
    "rope_scaling": (None,),
    "tie_word_embeddings": (False, True),
    "torch_dtype": ("float32", "float16", "bfloat16"),
    "use_cache": (False, True),
    "use_sliding_window": (False,),
}
ANY_VALUE: dict[str, tuple[type, ...]] = {  # types
    "attention_dropout": (float,),
    "max_window_layers": (int,),
    "pretraining_tp": (int,),
    "rms_norm_eps": (float,),
    "rope_theta": (float,),
    "sliding_window": (int, type(None)),
    "transformers_version": (str,),
}


def inspect_plain_model(options: EngineOptions) -> Iterator[str] | None:
    """Return the faults of a model that the torch engine can load on the CPU, which may be in its tokenizer; None if
    only a trial can tell.
    """
    folder = Path(options.model)
    checkpoint = read_checkpoint(folder)
    if options.adapters or options.embedding.task not in (None, "generate") or not _fits(options, checkpoint):
        return None
    if (folder / MODULES).exists() or pickled_adapter(folder) or wrong_files(folder, checkpoint):
        return None
    config = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    if not _is_plain(config) or (options.max_model_len or 0) > config["max_position_embeddings"]:
        return None
    if {name: weight.shape for name, weight in checkpoint.weights.items()} != _shapes(config):
        return None
    return inspect_tokenizer(folder, checkpoint, options.trust_remote_code)


def _fits(options: EngineOptions, checkpoint: Checkpoint) -> bool:
    """Return whether the weights would fit in memory even in the widest type; False if unknown."""
    if any(weight.data_type not in TYPES for weight in checkpoint.weights.values()):
        return False
    numbers = sum(prod(weight.shape) for weight in checkpoint.weights.values())
    return numbers * WIDTH + (options.kv_cache_memory or 0) <= (free_main_memory() or 0)


def _is_plain(config: Mapping[str, Any]) -> bool:
    """Return whether transformers would accept the configuration without a word."""
    needed = {*SIZES, "architectures", *(["head_dim"] if config.get("model_type") == "qwen3" else [])}
    return (
        config.get("model_type") in ARCHITECTURES
        and needed <= config.keys()
        and all(_is_size(config[name]) for name in SIZES)  # other values depend on them
        and all(_is_harmless(name, value, config) for name, value in config.items())
        and config["hidden_size"] % config["num_attention_heads"] == 0
    )


def _is_harmless(name: str, value: Any, config: Mapping[str, Any]) -> bool:
    if name in SIZES or name == "head_dim":
        return _is_size(value)
    if name in TOKENS:
        tokens = value if isinstance(value, list) and name == "eos_token_id" else [value]
        return all(each is None or (type(each) is int and 0 <= each < config["vocab_size"]) for each in tokens)
    match name:
        case "model_type":
            return True
        case "architectures":
            return bool(value == [ARCHITECTURES[config["model_type"]]])
        case "initializer_range":
            return type(value) is float and 0 <= value <= 1
        case "rope_parameters":
            return _is_default_rope(value)
        case "layer_types":
            return bool(value == ["full_attention"] * config["num_hidden_layers"])
    if name in HARMLESS:
        return any(value is each or (isinstance(each, str) and value == each) for each in HARMLESS[name])
    return type(value) in ANY_VALUE.get(name, ())


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_default_rope(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"rope_theta", "rope_type"}
        and value["rope_type"] == "default"
        and type(value["rope_theta"]) is float
    )


def _shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the model's weights by name."""
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    size = config.get("head_dim") or hidden // heads
    queries, keys = heads * size, config["num_key_value_heads"] * size
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "mlp.down_proj.weight": (hidden, inner),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
    }
    if config["model_type"] == "qwen2":
        layer |= {f"self_attn.{name}_proj.bias": (keys,) for name in "kv"} | {"self_attn.q_proj.bias": (queries,)}
    if config["model_type"] == "qwen3":
        layer |= {f"self_attn.{name}_norm.weight": (size,) for name in "qk"}
    layers = range(config["num_hidden_layers"])
    embeddings = (config["vocab_size"], hidden)
    return {
        **{f"model.layers.{number}.{name}": shape for number in layers for name, shape in layer.items()},
        **({} if config.get("tie_word_embeddings", False) else {"lm_head.weight": embeddings}),
        "model.embed_tokens.weight": embeddings,
        "model.norm.weight": (hidden,),
    }
