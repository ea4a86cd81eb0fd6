"""What becomes of a pooled vector: further layers, fewer numbers, a length of 1."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.nn import Linear, Module, Sequential
from torch.nn.functional import normalize

from lmi_core.errors import ConfigurationError
from lmi_plugins.torch_engine.embeddings.recipe import CONFIG, Recipe
from lmi_plugins.torch_engine.worker.embedding_messages import EmbeddingInput

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
ACTIVATIONS = "torch.nn.modules."  # the packages of the classes that a dense layer may name


class Head:
    """The way of a model's pooled vectors to those that it gives."""

    def __init__(self, recipe: Recipe, device: torch.device) -> None:
        """Load the recipe's layers. Raise ConfigurationError where one cannot be."""
        self._layers = [None if path is None else _dense(path).to(device).eval() for path in recipe.layers]
        self._normalize = recipe.normalize

    def apply(self, pooled: torch.Tensor, given: EmbeddingInput) -> torch.Tensor:
        """Return the vector, [numbers], of a pooled one, as its request wants it."""
        vector = pooled
        for layer in self._layers:
            vector = normalize(vector, dim=0) if layer is None else layer(vector)
        if given.dimensions is not None:
            vector = vector[: given.dimensions]
        wanted = self._normalize if given.normalize is None else given.normalize
        return normalize(vector, dim=0) if wanted else vector


def _dense(path: Path) -> Module:
    """Return a dense layer of sentence-transformers, whose numbers are float32 whatever the model's are."""
    try:
        config: dict[str, Any] = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        linear = Linear(config["in_features"], config["out_features"], bias=config.get("bias", True))
        weights = {name.removeprefix("linear."): each.float() for name, each in _weights(path).items()}
        linear.load_state_dict(weights)
        return Sequential(linear, _activation(config.get("activation_function", "torch.nn.modules.activation.Tanh")))
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ConfigurationError(f"{path}: the dense layer cannot be loaded: {reason}") from error


def _weights(path: Path) -> dict[str, torch.Tensor]:
    for name in WEIGHTS:
        if (path / name).is_file():
            file = path / name
            loaded: dict[str, torch.Tensor] = (
                load_file(file) if name == WEIGHTS[0] else torch.load(file, map_location="cpu", weights_only=True)
            )
            return loaded
    raise ValueError(f"it has neither {' nor '.join(WEIGHTS)}")


def _activation(name: str) -> Module:
    found = getattr(torch.nn, name.rpartition(".")[2], None) if name.startswith(ACTIVATIONS) else None
    if not (isinstance(found, type) and issubclass(found, Module)):
        raise ValueError(f"its activation_function {name} is no module of torch")
    return found()
