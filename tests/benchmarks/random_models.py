"""Llama models with random weights, in the sizes of the benchmarks."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

from tests.core.remote.archives.gguf_models import finish, write_llama

CONTEXT = 2048


@dataclass(frozen=True)
class RandomModel:
    description: str
    dtype: torch.dtype
    vocabulary: int
    sizes: dict[str, int]

    def save(self, directory: Path) -> None:
        """Save the model with a tokenizer of whole words and without an end-of-sequence token."""
        torch.manual_seed(0)
        llama: Any = LlamaConfig  # transformers' classes are not typed where they are called
        config = llama(
            vocab_size=self.vocabulary,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=0,
            **self.sizes,
        )
        factory: Any = AutoModelForCausalLM
        factory.from_config(config).to(self.dtype).save_pretrained(directory)
        words = {f"w{token_id}": token_id for token_id in range(self.vocabulary)}
        tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        pretrained: Any = PreTrainedTokenizerFast
        pretrained(tokenizer_object=tokenizer, unk_token="w0", pad_token="w0").save_pretrained(directory)


def save_gguf(directory: Path, kind: str) -> Path:
    """Write a saved model as a GGUF file with a vocabulary of made-up words, and weights of a kind."""
    file = directory / f"{kind}.gguf"
    config = json.loads((directory / "config.json").read_text())
    weights = {name: each.float().numpy() for name, each in load_file(directory / "model.safetensors").items()}
    writer = gguf.GGUFWriter(file, "llama")
    write_llama(writer, kind, config, weights)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([f"w{token_id}" for token_id in range(config["vocab_size"])])
    writer.add_token_types([gguf.TokenType.NORMAL] * config["vocab_size"])
    writer.add_token_merges(["w 0"])  # readers want one
    finish(writer)
    return file


SMALL = {
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
SMALL_DESCRIPTION = "Llama, 4 layers, hidden 256, 8 heads, 4 KV heads, fp32"

MODELS = {
    "small": RandomModel(SMALL_DESCRIPTION, torch.float32, 512, SMALL),
    "small-32k": RandomModel(SMALL_DESCRIPTION, torch.float32, 32_000, SMALL),  # half its time: the output layer
    "150M": RandomModel(
        "Llama, 16 layers, hidden 768, 12 heads, 4 KV heads, bf16",
        torch.bfloat16,
        32_000,
        {
            "hidden_size": 768,
            "intermediate_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 12,
            "num_key_value_heads": 4,
        },
    ),
}
