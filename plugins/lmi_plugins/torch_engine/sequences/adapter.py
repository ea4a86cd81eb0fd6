"""A LoRA adapter as the engine holds it."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch

_serials = itertools.count()


class LoraPair(NamedTuple):
    """The low-rank delta of one module, which adds input times `down` times `up` to its output."""

    down: torch.Tensor  # [in, rank]
    up: torch.Tensor  # [rank, out], scaled

    @property
    def rank(self) -> int:
        return self.down.shape[1]


AdapterWeights = Mapping[str, LoraPair]  # by the names of the model's modules


@dataclass(eq=False)
class Adapter:
    """One loaded adapter. A later adapter of the same name is a different one; sequences keep theirs until they end."""

    name: str
    directory: Path | None  # None: it was sent as tensors, and cannot be read again
    weights: AdapterWeights | None  # None: currently not in memory
    serial: int = field(default_factory=lambda: next(_serials))  # unique, even after the adapter is removed
