"""Tiny models of every architecture that the engine treats differently."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedTokenizerFast,
)

from lmi_core.generation.output import GenerationStep, Token
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.requests import EngineOptions, EngineRequest, SamplingParameters
from lmi_plugins.torch_engine.messages.results import Result

VOCABULARY = 320
CONTEXT = 128
TEXT = "Hello world, the quick brown fox jumps over the lazy dog. Grüße aus München! 東京は晴れ 🙂 "

# Large enough that no choice of a token depends on rounding.
SPREAD: dict[str, Any] = {"initializer_range": 0.3, "vocab_size": VOCABULARY}
LLAMA: dict[str, Any] = {
    **SPREAD,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
}
GPT: dict[str, Any] = {**SPREAD, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT}
WINDOW = 9

CONFIGS: dict[str, dict[str, Any]] = {  # by transformers' name of the architecture
    "llama": LLAMA,
    "qwen2": LLAMA,
    "qwen3": {**LLAMA, "head_dim": 8},
    "mistral": {**LLAMA, "sliding_window": WINDOW},
    "gpt2": GPT,
    "gemma2": {**LLAMA, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": WINDOW},
    "gemma": {**LLAMA, "head_dim": 8},
    "gemma3_text": {**LLAMA, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": WINDOW},
    "phi3": {**LLAMA, "pad_token_id": 0},
    "gpt_neox": LLAMA,
    "gpt_oss": {**LLAMA, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": WINDOW},
    "gptj": {**GPT, "rotary_dim": 4},
    "bloom": {**SPREAD, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "mamba": {**SPREAD, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    "qwen3_5_text": {
        **LLAMA,
        "head_dim": 8,
        "layer_types": ["linear_attention", "full_attention"],
        **{
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
    },
    "minicpm3": {
        **LLAMA,
        "num_key_value_heads": 4,
        **{"q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8},
    },
    "qwen3_moe": {
        **LLAMA,
        "head_dim": 8,
        **{"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128},
    },
    "lfm2": {**LLAMA, "layer_types": ["conv", "full_attention"]},
    "mamba2": {**SPREAD, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "num_heads": 4, "head_dim": 16}
    | {"expand": 2, "n_groups": 1},
    "mpt": {**SPREAD, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": CONTEXT},
    "trocr": {
        **SPREAD,
        "init_std": 0.3,
        "d_model": 32,
        "decoder_layers": 2,
        "decoder_attention_heads": 4,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": CONTEXT,
    },
}
WITH_STATE = ("mamba", "qwen3_5_text")
PAGED = ("llama", "qwen2", "qwen3", "mistral", "gpt2", "gemma2", "gpt_oss", "gptj", "bloom", *WITH_STATE)
BY_ROW = ("trocr",)


def save_tokenizer(directory: Path, vocabulary: int = VOCABULARY) -> None:
    """Save a byte-level tokenizer, which encodes any text, with characters that span tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    pretrained: Any = PreTrainedTokenizerFast  # not typed
    pretrained(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(directory)


def save_model(directory: Path, architecture: str, end_id: int | list[int] | None = None) -> None:
    save_configured(directory, architecture, CONFIGS[architecture], end_id)


def save_configured(
    directory: Path, architecture: str, config: dict[str, Any], end_id: int | list[int] | None = None
) -> None:
    torch.manual_seed(0)
    factory: Any = AutoModelForCausalLM  # not typed
    model = factory.from_config(AutoConfig.for_model(architecture, **config))
    model.config.eos_token_id = None
    model.generation_config.eos_token_id = end_id
    model.generation_config.pad_token_id = 0
    model.save_pretrained(directory)


def make_engine(directory: Path, **options: Any) -> Engine:
    return Engine(EngineOptions(str(directory), **options), HuggingFaceTokenizer.load(str(directory)))


def request(request_id: str, prompt_ids: list[int], **parameters: Any) -> EngineRequest:
    return EngineRequest(request_id, prompt_ids, SamplingParameters(**parameters))


def run(engine: Engine, *requests: EngineRequest) -> dict[str, list[Result]]:
    """Run the engine until it is idle; return all results by request."""
    results: dict[str, list[Result]] = {each.request_id: [] for each in requests}
    for each in requests:
        engine.add(each)
    while engine.has_work:
        for request_id, result in engine.step():
            results[request_id].append(result)
    return results


def tokens(results: list[Result]) -> list[Token]:
    """Return all tokens of a request, asserting that it did not fail."""
    steps = [result for result in results if isinstance(result, GenerationStep)]
    assert len(steps) == len(results), results
    return [token for step in steps for token in step.tokens]


def ids(results: list[Result]) -> list[int]:
    return [token.id for token in tokens(results)]


def text(results: list[Result]) -> str:
    return "".join(token.text for token in tokens(results))


def reference_model(directory: Path) -> Any:
    """Load a model in transformers, with eager attention, as the faster one omits Gemma 2's soft cap."""
    return AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager")


def reference_ids(model: Any, prompt_ids: list[int], count: int, **options: Any) -> list[int]:
    """Return the ids generated by transformers' greedy decoding."""
    prompt = torch.tensor([prompt_ids])
    mask = torch.ones_like(prompt)
    output = model.generate(prompt, attention_mask=mask, max_new_tokens=count, do_sample=False, **options)
    generated: list[int] = output[0, len(prompt_ids) :].tolist()
    return generated
