"""Hidden states of whole texts, from a model with the paged runner's attention."""

from collections.abc import Sequence as Items

import torch
from transformers import PreTrainedModel

from lmi_plugins.torch_engine.embeddings.hidden_states import HiddenStates
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput
from lmi_plugins.torch_engine.model.attention import (
    AttentionOptions,
    AttentionRows,
    AttentionStep,
    attend_to_itself,
    running,
)
from lmi_plugins.torch_engine.model.paged_support import takes_positions
from lmi_plugins.torch_engine.model.rope_by_length import RopeByLength, applied_to_texts
from lmi_plugins.torch_engine.model.state_layers import StateLayer


class PackedStates(HiddenStates):
    """Hidden states of texts packed into one pass, without padding or a cache."""

    def __init__(self, model: PreTrainedModel, rope: RopeByLength | None = None) -> None:
        self._model = model
        self._rope = rope

    def run(self, texts: Items[EmbeddingInput]) -> list[torch.Tensor]:
        device = self._model.device
        lengths = [len(text.prompt_ids) for text in texts]
        positions = torch.cat([torch.arange(length, device=device) for length in lengths])[None]
        with applied_to_texts(self._rope, lengths), running(PackedStep(lengths)):
            output = self._model(
                input_ids=torch.tensor([[token_id for text in texts for token_id in text.prompt_ids]], device=device),
                use_cache=False,
                **({"position_ids": positions} if takes_positions(self._model) else {}),
            )
        return list(torch.split(output.last_hidden_state[0], lengths))


class PackedStep(AttentionStep):
    """Causal attention of packed texts, each to itself."""

    def __init__(self, lengths: Items[int]) -> None:
        self._lengths = list(lengths)
        self._rows: dict[int, AttentionRows] = {}  # by the length of a text

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        queries, keys, values = (
            torch.split(states[0].transpose(0, 1), self._lengths) for states in (query, key, value)
        )
        outputs = [self._attend(*part, options) for part in zip(queries, keys, values, strict=True)]
        return torch.cat(outputs)[None]

    def mix(self, layer: StateLayer, hidden: torch.Tensor) -> torch.Tensor:
        return torch.cat([layer.run(text[None], None)[0] for text in torch.split(hidden[0], self._lengths)])[None]

    def _attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        """Return the output for one text. All: [tokens, heads, size]."""
        length = len(query)
        if options.is_plain(length):
            return attend_to_itself(query, key, value, options.scale)
        if length not in self._rows:
            positions = torch.arange(length, device=query.device)[None]
            self._rows[length] = AttentionRows(positions, length, query.dtype, block_size=1)
        return self._rows[length].attend(query, key.transpose(0, 1)[None], value.transpose(0, 1)[None], options)
