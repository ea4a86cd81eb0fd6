"""Dense layers of sentence-transformers."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lmi_core.errors import ConfigurationError
from lmi_plugins.torch_engine.embeddings.embedder import Head
from lmi_plugins.torch_engine.embeddings.recipe import Recipe
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput
from tests.plugins.torch_engine.embeddings.encoders import save_recipe

CPU = torch.device("cpu")
DENSE = "2_Dense"


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    save_recipe(tmp_path, {}, dense=8)
    return tmp_path / DENSE


def test_weights_in_pytorch_s_format(layer: Path) -> None:
    pooled = torch.arange(32.0) / 32
    before = Head(Recipe(("cls",), False, (layer,)), CPU).apply(pooled, EmbeddingInput([0]))
    weights = layer / "model.safetensors"
    torch.save(load_file(weights), layer / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(ConfigurationError, match="is a pickle, which may contain code"):
        Head(Recipe(("cls",), False, (layer,)), CPU)
    after = Head(Recipe(("cls",), False, (layer,)), CPU, allow_pickle=True).apply(pooled, EmbeddingInput([0]))
    assert torch.equal(before, after)
    assert before.shape == (8,)


def test_length_of_1_in_between(layer: Path) -> None:
    pooled = torch.arange(32.0)
    whole = Head(Recipe(("cls",), False, (None, layer)), CPU).apply(pooled, EmbeddingInput([0]))
    scaled = Head(Recipe(("cls",), False, (None, layer)), CPU).apply(pooled * 7, EmbeddingInput([0]))
    torch.testing.assert_close(whole, scaled)


@pytest.mark.parametrize(
    "name", ["os.system", "torch.nn.modules.activation.system", "torch.nn.modules.loss.functional"]
)
def test_activation_that_is_none(layer: Path, name: str) -> None:
    config = json.loads((layer / "config.json").read_text(encoding="utf-8"))
    (layer / "config.json").write_text(json.dumps(config | {"activation_function": name}), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=f"its activation_function {name} is not a torch module"):
        Head(Recipe(("cls",), False, (layer,)), CPU)


def test_missing_weights(layer: Path) -> None:
    (layer / "model.safetensors").unlink()
    with pytest.raises(ConfigurationError, match="it has neither model"):
        Head(Recipe(("cls",), False, (layer,)), CPU)
