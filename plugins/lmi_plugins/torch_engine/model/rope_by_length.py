"""Rotary embeddings that depend on the length of a sequence: transformers' rope types `longrope` and `dynamic`.

transformers chooses the frequencies of a whole pass by its highest position. Here, each token has the frequencies of
its own sequence, regardless of the rest of the pass and of the part of the prompt that it computes.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Items
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Self

import torch
from transformers import PreTrainedModel

from lmi_plugins.torch_engine.sequences.sequence import Sequence
from lmi_plugins.torch_engine.sequences.step_batch import Chunk

GROWING = "dynamic"  # its frequencies change with each token; keys already cached keep theirs
SWITCHING = "longrope"  # has two sets of frequencies: above a certain length, everything is recomputed with the second


class RopeByLength:
    """The rotary embeddings of a model with such a rope type."""

    def __init__(self, modules: list[Any], grows: bool, original: int) -> None:
        self.modules = modules  # empty if the model has its own form
        self.grows = grows
        self._original = original  # tokens; up to this, the length does not matter

    @classmethod
    def of(cls, model: PreTrainedModel, max_length: int) -> Self | None:
        """Return the rotary embeddings of a model if they depend on the length of sequences of up to `max_length`."""
        config = model.config.get_text_config()
        rope: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
        for each in (rope, *(value for value in rope.values() if isinstance(value, dict))):
            if (rope_type := each.get("rope_type")) not in (GROWING, SWITCHING):
                continue
            original: int = config.max_position_embeddings
            if rope_type == SWITCHING:
                original = each.get("original_max_position_embeddings") or original
            if max_length > original:
                modules = [module for module in model.modules() if getattr(module, "rope_type", None) == rope_type]
                return cls(modules, rope_type == GROWING, original)
        return None

    def prepare(self, sequence: Sequence) -> None:
        """Record in a new sequence when its tokens must be recomputed, and what its keys depend on."""
        if not self.grows:
            sequence.recompute_beyond = self._original
            if sequence.outgrown:
                sequence.outgrow()
        elif sequence.prompt_length > self._original:
            sequence.variant += ("prompt length", sequence.prompt_length)

    def lengths(self, chunks: Items[Chunk]) -> list[int]:
        """Return for each token of the chunks the length of the sequence that transformers would compute it with."""
        lengths: list[int] = []
        for chunk in chunks:
            if self.grows:
                lengths += [max(chunk.sequence.prompt_length, index + 1) for index in range(chunk.start, chunk.end)]
            else:
                lengths += [len(chunk.sequence.token_ids)] * len(chunk)
        return lengths

    @contextmanager
    def applied(self, lengths: Items[int]) -> Iterator[None]:
        """Make a pass compute each token as part of a sequence of that length."""
        places: dict[int, list[int]] = {}
        for index, length in enumerate(lengths):
            places.setdefault(self._deciding(length), []).append(index)
        try:
            for module in self.modules:
                module.forward = partial(self._embed, module, places)
            yield
        finally:
            for module in self.modules:
                del module.forward  # restores the method of its class

    def _deciding(self, length: int) -> int:
        """Return a representative of all lengths that have the same frequencies as this one."""
        if length <= self._original:
            return 1
        return length if self.grows else self._original + 1

    def _embed(
        self, module: Any, places: dict[int, list[int]], states: torch.Tensor, position_ids: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return the cosines and sines of positions, [..., tokens], for the tokens at `places` of each length."""
        parts = []
        for length, indices in places.items():
            if self.grows:  # it remembers the longest previous pass
                module.inv_freq, module.max_seq_len_cached = module.original_inv_freq, module.original_max_seq_len
            deciding = position_ids.new_full((*position_ids.shape[:-1], 1), length - 1)
            found = type(module).forward(module, states, torch.cat([position_ids[..., indices], deciding], -1))
            parts.append([each[..., :-1, :] for each in found])
        if len(parts) == 1:
            return tuple(parts[0])
        order = torch.tensor([index for indices in places.values() for index in indices], device=states.device)
        return tuple(torch.cat(each, -2)[..., order.argsort(), :] for each in zip(*parts, strict=True))


def applied_to_texts(rope: RopeByLength | None, lengths: Items[int]) -> AbstractContextManager[None]:
    """Return a context in which a pass computes whole texts of these lengths, one after another."""
    return nullcontext() if rope is None else rope.applied([length for length in lengths for _ in range(length)])


def applied_to_chunks(rope: RopeByLength | None, chunks: Items[Chunk]) -> AbstractContextManager[None]:
    """Return a context in which a pass computes these chunks."""
    return nullcontext() if rope is None else rope.applied(rope.lengths(chunks))
