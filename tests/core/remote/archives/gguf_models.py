"""Llama models as GGUF files, written by llama.cpp's own library: examples/hello, or any other."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

HELLO = Path(__file__).parents[4] / "examples" / "hello"
END = 1  # the token that ends an answer


def read(name: str) -> Any:
    return json.loads((HELLO / name).read_text())


def write_hello(
    file: Path,
    kind: str = "F16",
    *,
    architecture: str = "llama",
    metadata: dict[str, int | str] | None = None,
    rope_factors: np.ndarray[Any, np.dtype[np.float32]] | None = None,
) -> Path:
    """Write the model with weights of a kind, and further metadata: numbers and texts by key."""
    config, tokenizer = read("config.json"), read("tokenizer.json")
    writer = gguf.GGUFWriter(file, architecture)
    write_llama(writer, kind, config, load_file(HELLO / "model.safetensors"))
    _write_tokenizer(writer, tokenizer)
    for key, value in (metadata or {}).items():
        if isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_uint32(key, value)
    if rope_factors is not None:
        writer.add_tensor("rope_freqs.weight", rope_factors)
    finish(writer)
    return file


def write_llama(writer: gguf.GGUFWriter, kind: str, config: Any, weights: Mapping[str, Any]) -> None:
    """Write a Llama's configuration, and its weights by the names in safetensors, as numpy's arrays."""
    writer.add_name("hello")
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind}"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    _write_weights(writer, config, weights, gguf.GGMLQuantizationType[kind])


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_tokenizer(writer: gguf.GGUFWriter, tokenizer: Any) -> None:
    vocabulary, special = tokenizer["model"]["vocab"], {each["content"] for each in tokenizer["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(END)
    writer.add_chat_template((HELLO / "chat_template.jinja").read_text())


def _write_weights(
    writer: gguf.GGUFWriter, config: Any, weights_by_name: Mapping[str, Any], kind: gguf.GGMLQuantizationType
) -> None:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, weights in weights_by_name.items():
        for part, count in heads.items():
            if part in name:  # llama.cpp rotates neighbours, transformers halves
                weights = weights.reshape(count, 2, -1, weights.shape[1]).swapaxes(1, 2).reshape(weights.shape)
        written = names.get_name(name, try_suffixes=(".weight",))
        assert written is not None
        if weights.ndim == 1:
            writer.add_tensor(written, weights.astype(np.float32))
        else:
            writer.add_tensor(written, gguf.quants.quantize(weights.astype(np.float32), kind), raw_dtype=kind)
