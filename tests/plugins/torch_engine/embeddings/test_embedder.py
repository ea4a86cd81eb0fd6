"""Dense layers of sentence-transformers."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lmi_core.errors import ConfigurationError
from lmi_plugins.torch_engine.embeddings.embedder import Embedder
from lmi_plugins.torch_engine.embeddings.hidden_states import HiddenStates
from lmi_plugins.torch_engine.embeddings.recipe import Recipe
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput
from tests.plugins.torch_engine.embeddings.encoders import save_recipe

CPU = torch.device("cpu")
DENSE = "2_Dense"


class Given(HiddenStates):
    """One hidden state, whatever the text."""

    def __init__(self, state: torch.Tensor) -> None:
        self._state = state

    def run(self, texts: Sequence[EmbeddingInput]) -> list[torch.Tensor]:
        return [self._state[None] for _ in texts]


def vector(pooled: torch.Tensor, *layers: Path | None, allow_pickle: bool = False) -> torch.Tensor:
    """Return the vector for a pooled state."""
    embedder = Embedder(Given(pooled), Recipe(("cls",), False, layers), CPU, allow_pickle=allow_pickle)
    (found,) = embedder.embed([EmbeddingInput([0])])
    assert found is not None
    return torch.frombuffer(bytearray(found), dtype=torch.float32)


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    save_recipe(tmp_path, {}, dense=8)
    return tmp_path / DENSE


def test_weights_in_pytorch_s_format(layer: Path) -> None:
    pooled = torch.arange(32.0) / 32
    before = vector(pooled, layer)
    weights = layer / "model.safetensors"
    torch.save(load_file(weights), layer / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(ConfigurationError, match="is a pickle, which may contain code"):
        vector(torch.ones(32), layer)
    after = vector(pooled, layer, allow_pickle=True)
    assert torch.equal(before, after)
    assert before.shape == (8,)


def test_length_of_1_in_between(layer: Path) -> None:
    pooled = torch.arange(32.0)
    whole = vector(pooled, None, layer)
    scaled = vector(pooled * 7, None, layer)
    torch.testing.assert_close(whole, scaled)


@pytest.mark.parametrize(
    "name", ["os.system", "torch.nn.modules.activation.system", "torch.nn.modules.loss.functional"]
)
def test_activation_that_is_none(layer: Path, name: str) -> None:
    config = json.loads((layer / "config.json").read_text(encoding="utf-8"))
    (layer / "config.json").write_text(json.dumps(config | {"activation_function": name}), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=f"its activation_function {name} is not a torch module"):
        vector(torch.ones(32), layer)


def test_missing_weights(layer: Path) -> None:
    (layer / "model.safetensors").unlink()
    with pytest.raises(ConfigurationError, match="it has neither model"):
        vector(torch.ones(32), layer)
