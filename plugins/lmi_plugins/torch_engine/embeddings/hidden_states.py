"""Hidden states of whole texts, from models with their own attention."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator
from collections.abc import Sequence as Items
from typing import Any

import torch
from transformers import PreTrainedModel

from lmi_plugins.torch_engine.adapters.store import AdapterStore
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput
from lmi_plugins.torch_engine.model.rope_by_length import RopeByLength, applied_to_texts

MAX_PADDING = 0.25  # of the tokens computed in one pass


class HiddenStates(ABC):
    """A model that returns the hidden states of its last layer."""

    adapters: AdapterStore | None = None  # those of a model that also generates, which are not applied

    @abstractmethod
    def run(self, texts: Items[EmbeddingInput]) -> list[torch.Tensor]:
        """Return the hidden states, [tokens, hidden], of each text."""


class PaddedStates(HiddenStates):
    """Hidden states of texts of similar length, computed in a batch with padding on the right."""

    def __init__(self, model: PreTrainedModel, rope: RopeByLength | None = None) -> None:
        self._model = model
        self._rope = rope
        self._pad_token_id = model.config.get_text_config().pad_token_id or 0
        arguments = inspect.signature(model.forward).parameters
        self._arguments: dict[str, Any] = {"use_cache": False} if "use_cache" in arguments else {}
        self._takes_mask = "attention_mask" in arguments
        self._takes_types = "token_type_ids" in arguments
        self.alone = rope is not None or not self._takes_mask  # each text needs its own pass

    def run(self, texts: Items[EmbeddingInput]) -> list[torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        lengths = [len(text.prompt_ids) for text in texts]
        for indices in _alike(lengths, 1 if self.alone else len(texts)):
            states = self.states([texts[index] for index in indices])
            found |= {index: states[row, : lengths[index]] for row, index in enumerate(indices)}
        return [found[index] for index in range(len(texts))]

    def states(self, texts: list[EmbeddingInput]) -> torch.Tensor:
        """Return the hidden states, [texts, longest, hidden]."""
        states: torch.Tensor = self.output(texts).last_hidden_state
        return states

    def output(self, texts: list[EmbeddingInput]) -> Any:
        """Return the model's output for texts, padded on the right."""
        inputs = {"input_ids": self._pad([text.prompt_ids for text in texts], self._pad_token_id)}
        if self._takes_mask:
            inputs["attention_mask"] = self._pad([[1] * len(text.prompt_ids) for text in texts], 0)
        if self._takes_types and any(text.token_types is not None for text in texts):
            types = [text.token_types or [0] * len(text.prompt_ids) for text in texts]
            inputs["token_type_ids"] = self._pad(types, 0)
        with applied_to_texts(self._rope, [inputs["input_ids"].shape[1]]):
            return self._model(**inputs, **self._arguments, return_dict=True)

    def _pad(self, rows: list[list[int]], padding: int) -> torch.Tensor:
        longest = max(map(len, rows))
        return torch.tensor([row + [padding] * (longest - len(row)) for row in rows], device=self._model.device)


def _alike(lengths: list[int], most: int) -> Iterator[list[int]]:
    """Yield the indices of texts of similar length, at most `most` together, to minimize padding."""
    group: list[int] = []
    tokens = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        padded = lengths[group[0]] * (len(group) + 1) if group else 0
        if group and (len(group) == most or padded - tokens - lengths[index] > MAX_PADDING * padded):
            yield group
            group, tokens = [], 0
        group.append(index)
        tokens += lengths[index]
    yield group
