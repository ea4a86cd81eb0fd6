"""The embedding of texts."""

import json
from collections.abc import Sequence as Items
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.nn import Linear, Module, Sequential
from torch.nn.functional import normalize

from lmi_core.errors import ConfigurationError
from lmi_core.errors.fault import Fault
from lmi_core.inspection.layers import LAYER, PICKLED_LAYER
from lmi_core.inspection.pickles import refusal
from lmi_plugins.torch_engine.checkpoint.pickled import load_pickled
from lmi_plugins.torch_engine.embeddings.hidden_states import HiddenStates
from lmi_plugins.torch_engine.embeddings.recipe import CONFIG, Recipe, pool
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput
from lmi_plugins.torch_engine.messages.tensors import to_bytes

ACTIVATIONS = "torch.nn.modules."  # the package of the classes that a dense layer may name


def _dense(path: Path, allow_pickle: bool) -> Module:
    """Return a dense layer of sentence-transformers, always in float32."""
    try:
        config: dict[str, Any] = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        linear = Linear(config["in_features"], config["out_features"], bias=config.get("bias", True))
        weights = {name.removeprefix("linear."): each.float() for name, each in _weights(path, allow_pickle).items()}
        linear.load_state_dict(weights)
        return Sequential(linear, activation(config.get("activation_function", "torch.nn.modules.activation.Tanh")))
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ConfigurationError(f"{path}: the dense layer cannot be loaded: {reason}") from error


def _weights(path: Path, allow_pickle: bool) -> dict[str, torch.Tensor]:
    if (path / LAYER).is_file():
        return load_file(path / LAYER)
    if not (file := path / PICKLED_LAYER).is_file():
        raise ValueError(f"it has neither {LAYER} nor {PICKLED_LAYER}")
    if fault := refusal([file], allow_pickle):
        raise ConfigurationError(fault)
    try:
        loaded: dict[str, torch.Tensor] = load_pickled(file)
    except Fault as unread:
        raise ConfigurationError(str(unread)) from None
    return loaded


def activation(name: str) -> Module:
    """Return torch's module of that name. Raise ValueError if there is none."""
    found = getattr(torch.nn, name.rpartition(".")[2], None) if name.startswith(ACTIVATIONS) else None
    if not (isinstance(found, type) and issubclass(found, Module)):
        raise ValueError(f"its activation_function {name} is not a torch module")
    return found()


class Embedder:
    """A model's hidden states, and the recipe for its vectors."""

    def __init__(
        self, states: HiddenStates, recipe: Recipe, device: torch.device, *, allow_pickle: bool = False
    ) -> None:
        """Load the recipe's layers. Raise ConfigurationError if one cannot be loaded."""
        self._states = states
        self._recipe = recipe
        self._layers = [
            None if path is None else _dense(path, allow_pickle).to(device).eval() for path in recipe.layers
        ]

    def embed(self, inputs: Items[EmbeddingInput]) -> list[bytes | None]:
        """Return the vector of each input as float32; None if it contains NaN."""
        return [to_bytes(vector) if vector.isfinite().all() else None for vector in self._vectors(inputs)]

    def size(self) -> int:
        """Return the size of a vector, by computing one."""
        return len(self._vectors([EmbeddingInput([0, 0])])[0])

    @torch.inference_mode()
    def _vectors(self, inputs: Items[EmbeddingInput]) -> Items[torch.Tensor]:
        """Return the vectors, [numbers] each, in main memory."""
        if self._states.adapters is not None:
            self._states.adapters.begin([])  # without those of the previous generation step
        states = self._states.run(inputs)
        vectors = [
            self._vector(pool(of_text, self._recipe.modes), each) for of_text, each in zip(states, inputs, strict=True)
        ]
        return torch.split(torch.cat(vectors).cpu(), [len(vector) for vector in vectors])

    def _vector(self, vector: torch.Tensor, given: EmbeddingInput) -> torch.Tensor:
        """Return the vector, [size], for pooled hidden states, in the form that its request requires."""
        for layer in self._layers:
            vector = normalize(vector, dim=0) if layer is None else layer(vector)
        if given.dimensions is not None:
            vector = vector[: given.dimensions]
        wanted = self._recipe.normalize if given.normalize is None else given.normalize
        return self._recipe.activation(vector) if wanted else vector
