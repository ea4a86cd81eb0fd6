"""Checkpoints whose weights are not those of the model that config.json describes: none of them is served."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lmi_core.errors import ConfigurationError
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.model.loading import check_tokenizer, load_model
from tests.plugins.torch_engine.conftest import ModelDirectory
from tests.plugins.torch_engine.tiny_models import VOCABULARY

Weights = dict[str, torch.Tensor]

EMBEDDINGS = ("model.embed_tokens.weight", "lm_head.weight")
CAUSE = "config.json describes a different model than the checkpoint, or files of the checkpoint are missing"


@pytest.fixture
def copy(model_directory: ModelDirectory, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model_directory("llama"), tmp_path / "llama"))


def configure(directory: Path, **values: Any) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def change_weights(directory: Path, change: Callable[[Weights], object]) -> None:
    file = directory / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={"format": "pt"})


def refusal(directory: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_model(EngineOptions(str(directory)))
    assert caught.value.message.startswith(str(directory))
    return caught.value.message.removeprefix(str(directory)).removeprefix(": ").removeprefix("/")


def test_missing_weights(copy: Path) -> None:
    configure(copy, num_hidden_layers=3)
    names = "model.layers.2.input_layernorm.weight, model.layers.2.mlp.down_proj.weight, model.layers.2.mlp.gate_proj.w"
    assert refusal(copy) == f"9 weights are missing ({names}eight and 6 more): {CAUSE}"


def test_weights_of_a_layer_that_the_model_does_not_have(copy: Path) -> None:
    configure(copy, num_hidden_layers=1)
    assert refusal(copy).startswith("9 weights are not in the model (model.layers.1.input_layernorm.weight, ")


def test_weights_of_another_shape(copy: Path) -> None:
    configure(copy, intermediate_size=64)
    shown = "model.layers.0.mlp.down_proj.weight has the shape [32, 48] instead of [32, 64], model.layers.0.mlp.gate_pr"
    assert refusal(copy).startswith(f"6 weights are of another shape ({shown}")


def test_weights_of_another_architecture(copy: Path) -> None:
    configure(copy, model_type="gptj", architectures=["GPTJForCausalLM"])
    message = refusal(copy)
    assert " weights are missing (lm_head.bias, " in message
    assert " weights are not in the model (model.embed_tokens.weight, " in message


def test_one_weight(copy: Path) -> None:
    change_weights(copy, lambda weights: weights.pop("lm_head.weight"))
    assert refusal(copy) == f"1 weight is missing (lm_head.weight): {CAUSE}"


def test_tied_weights_and_buffers_may_be_there_or_not(copy: Path) -> None:
    def tie(weights: Weights) -> None:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
        weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)

    configure(copy, tie_word_embeddings=True)
    change_weights(copy, tie)
    load_model(EngineOptions(str(copy)))
    change_weights(copy, lambda weights: weights.pop("lm_head.weight"))
    load_model(EngineOptions(str(copy)))


def test_buffers_of_older_checkpoints(model_directory: ModelDirectory, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(model_directory("gpt2"), tmp_path / "gpt2"))
    mask = {"transformer.h.0.attn.bias": torch.ones(1, 1, 4, 4), "transformer.h.0.attn.masked_bias": torch.ones(1)}
    change_weights(directory, lambda weights: weights.update(mask))
    load_model(EngineOptions(str(directory)))


def test_truncated_file(copy: Path) -> None:
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:50_000])
    assert refusal(copy).startswith(
        "model.safetensors: the file is cut off, damaged, or not in the safetensors format: "
    )


def test_missing_shard(copy: Path) -> None:
    names = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "model-00001-of-00002.safetensors")}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    assert refusal(copy) == "1 of 1 shards missing: model-00001-of-00002.safetensors"


def test_tokenizer_of_another_model(copy: Path) -> None:
    configure(copy, vocab_size=300)
    change_weights(copy, lambda weights: weights.update({name: weights[name][:300].clone() for name in EMBEDDINGS}))
    tokenizer = HuggingFaceTokenizer.load(str(copy))
    with pytest.raises(ConfigurationError) as caught:
        check_tokenizer(load_model(EngineOptions(str(copy))), tokenizer)
    token = tokenizer.token_name(300)
    without = f"no embedding for 20 of its tokens, from 300 ({token!r}) on: the model has 300"
    assert caught.value.message == f"{copy}: the tokenizer is not this model's: {without}"


def test_added_tokens_without_embeddings_are_logged(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = HuggingFaceTokenizer.load(str(copy))
    model = load_model(EngineOptions(str(copy)))
    check_tokenizer(model, tokenizer)
    assert caplog.text == ""
    tokenizer.pretrained.add_special_tokens({"pad_token": "<pad>"})
    check_tokenizer(model, tokenizer)
    assert (
        f"no embedding for 1 of its tokens, from {VOCABULARY} ('<pad>') on: the model has {VOCABULARY}" in caplog.text
    )
