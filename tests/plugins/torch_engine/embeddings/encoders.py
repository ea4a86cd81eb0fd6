"""Tiny models that make vectors, and the same vectors as transformers and sentence-transformers' rules give them."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import processors
from torch.nn.functional import normalize
from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, AutoTokenizer

from tests.plugins.torch_engine.tiny_models import VOCABULARY, save_model, save_tokenizer

ENCODER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 66,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
    "cls_token_id": 0,
    "sep_token_id": 1,
}
T5: dict[str, Any] = {
    "vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "pad_token_id": 0,
}  # fmt: skip
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": ENCODER,
    "xlm-roberta": ENCODER,
    "mpnet": ENCODER,
    "modernbert": ENCODER,
    "distilbert": {**ENCODER, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
    "t5": T5,
}
DECODERS = ("llama", "qwen3", "mistral", "gemma2", "gpt2", "gptj", "bloom", "mpt", "mamba")
TEXTS = ["Hello world", "the quick brown fox jumps over the lazy dog", "Grüße", "fox " * 15, "a"]


def save_encoder(directory: Path, architecture: str, **changes: Any) -> None:
    """Save a model and a tokenizer that puts a token before a text, and one behind it."""
    save_tokenizer(directory)
    tokenizer: Any = AutoTokenizer.from_pretrained(directory)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    tokenizer.save_pretrained(directory)
    torch.manual_seed(0)
    config = AutoConfig.for_model(architecture, **{**ENCODERS[architecture], **changes})
    factory: Any = AutoModelForTextEncoding if architecture == "t5" else AutoModel
    factory.from_config(config).save_pretrained(directory)


def save_recipe(
    directory: Path, pooling: dict[str, Any], *, dense: int | None = None, normalized: bool = True, length: int = 64
) -> None:
    """Write the files of sentence-transformers, with a dense layer of so many numbers."""
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")]
    write(directory / "1_Pooling" / "config.json", pooling)
    if dense is not None:
        kinds.append(("2_Dense", "Dense"))
        activation = "torch.nn.modules.activation.Tanh"
        shape = {"in_features": 32, "out_features": dense, "bias": True, "activation_function": activation}
        write(directory / "2_Dense" / "config.json", shape)
        torch.manual_seed(1)
        layer = torch.nn.Linear(32, dense)
        weights = {f"linear.{name}": each.detach() for name, each in layer.named_parameters()}
        save_file(weights, directory / "2_Dense" / "model.safetensors")
    if normalized:
        kinds.append((f"{len(kinds)}_Normalize", "Normalize"))
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(kinds)
    ]
    write(directory / "modules.json", modules)
    write(directory / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def save_decoder(directory: Path, architecture: str) -> None:
    save_tokenizer(directory)
    save_model(directory, architecture)


def reference_states(directory: Path, ids: list[int]) -> torch.Tensor:
    """Return transformers' hidden states, [tokens, hidden], of one text by itself."""
    config = AutoConfig.from_pretrained(directory)
    factory: Any = AutoModelForTextEncoding if config.model_type == "t5" else AutoModel
    # Eager attention, as the faster one omits Gemma 2's soft cap.
    eager = {"attn_implementation": "eager"} if config.model_type == "gemma2" else {}
    model = factory.from_pretrained(directory, **eager).eval()
    with torch.inference_mode():
        states: torch.Tensor = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    return states


def reference_vector(states: torch.Tensor, mode: str) -> torch.Tensor:
    """Return the pooled vector by sentence-transformers' definitions, which have a mask of a padded batch."""
    mask = torch.ones(1, len(states), 1)
    padded = torch.cat([states, torch.full_like(states[:1], 9.0)])[None]
    mask = torch.cat([mask, torch.zeros(1, 1, 1)], 1)
    match mode:
        case "cls":
            return padded[0, 0]
        case "mean":
            return ((padded * mask).sum(1) / mask.sum(1))[0]
        case "mean_sqrt_len":
            return ((padded * mask).sum(1) / mask.sum(1).sqrt())[0]
        case "max":
            return padded.masked_fill(mask == 0, -1e9).max(1).values[0]
        case "weightedmean":
            weights = mask * torch.arange(1, padded.shape[1] + 1)[None, :, None]
            return ((padded * weights).sum(1) / weights.sum(1))[0]
        case "lasttoken":
            return padded[0, int(mask.sum()) - 1]
    raise ValueError(mode)


def unit(vector: torch.Tensor) -> list[float]:
    numbers: list[float] = normalize(vector, dim=0).tolist()
    return numbers


def numbers(vector: bytes) -> list[float]:
    found: list[float] = torch.frombuffer(bytearray(vector), dtype=torch.float32).tolist()
    return found
