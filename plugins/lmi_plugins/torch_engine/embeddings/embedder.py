"""Vectors of texts."""

from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.embeddings.head import Head
from lmi_plugins.torch_engine.embeddings.hidden_states import HiddenStates
from lmi_plugins.torch_engine.embeddings.pooling import pool
from lmi_plugins.torch_engine.embeddings.recipe import Recipe
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput
from lmi_plugins.torch_engine.messages.tensors import to_bytes


class Embedder:
    """A model's hidden states, and the recipe of its vectors."""

    def __init__(
        self, states: HiddenStates, recipe: Recipe, device: torch.device, *, allow_pickle: bool = False
    ) -> None:
        """Load the recipe's layers. Raise ConfigurationError where one cannot be."""
        self._states = states
        self._modes = recipe.modes
        self._head = Head(recipe, device, allow_pickle=allow_pickle)

    def embed(self, inputs: Items[EmbeddingInput]) -> list[bytes | None]:
        """Return the vector of each input as float32; None where the model gives no numbers."""
        return [to_bytes(vector) if vector.isfinite().all() else None for vector in self._vectors(inputs)]

    def size(self) -> int:
        """Return how many numbers a vector has, by making one."""
        return len(self._vectors([EmbeddingInput([0, 0])])[0])

    @torch.inference_mode()
    def _vectors(self, inputs: Items[EmbeddingInput]) -> Items[torch.Tensor]:
        """Return the vectors, [numbers] each, in main memory."""
        states = self._states.run([each.prompt_ids for each in inputs])
        vectors = [
            self._head.apply(pool(of_text, self._modes), each) for of_text, each in zip(states, inputs, strict=True)
        ]
        return torch.split(torch.cat(vectors).cpu(), [len(vector) for vector in vectors])
