"""Hidden states of whole texts, from models with their own attention."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator
from collections.abc import Sequence as Items
from typing import Any

import torch
from transformers import PreTrainedModel

from lmi_plugins.torch_engine.model.rope_by_length import RopeByLength, applied_to_texts

MAX_PADDING = 0.25  # of the tokens that one pass computes


class HiddenStates(ABC):
    """A model that returns the hidden states of its last layer."""

    @abstractmethod
    def run(self, texts: Items[list[int]]) -> list[torch.Tensor]:
        """Return the hidden states, [tokens, hidden], of each text, given as token ids."""


class PaddedStates(HiddenStates):
    """Hidden states of texts of similar length, computed in a batch with padding on the right."""

    def __init__(self, model: PreTrainedModel, rope: RopeByLength | None = None) -> None:
        self._model = model
        self._rope = rope
        self._pad_token_id = model.config.get_text_config().pad_token_id or 0
        arguments = inspect.signature(model.forward).parameters
        self._arguments: dict[str, Any] = {"use_cache": False} if "use_cache" in arguments else {}
        self._takes_mask = "attention_mask" in arguments

    def run(self, texts: Items[list[int]]) -> list[torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        alone = self._rope is not None or not self._takes_mask
        for indices in _alike([len(text) for text in texts], 1 if alone else len(texts)):
            states = self._forward([texts[index] for index in indices])
            found |= {index: states[row, : len(texts[index])] for row, index in enumerate(indices)}
        return [found[index] for index in range(len(texts))]

    def _forward(self, texts: list[list[int]]) -> torch.Tensor:
        """Return the hidden states, [texts, longest, hidden]."""
        longest = max(map(len, texts))
        ids = [text + [self._pad_token_id] * (longest - len(text)) for text in texts]
        inputs = {"input_ids": torch.tensor(ids, device=self._model.device)}
        if self._takes_mask:
            mask = [[1] * len(text) + [0] * (longest - len(text)) for text in texts]
            inputs["attention_mask"] = torch.tensor(mask, device=self._model.device)
        with applied_to_texts(self._rope, [longest]):
            states: torch.Tensor = self._model(**inputs, **self._arguments, return_dict=True).last_hidden_state
        return states


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
