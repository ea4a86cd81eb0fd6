"""Runs the model over the chunks of a step."""

from abc import ABC, abstractmethod
from collections.abc import Sequence as Items
from typing import ClassVar

import torch

from lmi_plugins.torch_engine.adapters.store import AdapterStore
from lmi_plugins.torch_engine.sequence import Chunk


class ModelRunner(ABC):
    """Keeps the keys and values of what it ran. Which blocks they take is the scheduler's choice."""

    adapters: AdapterStore | None = None  # told before each forward pass which adapters are in it
    paged: ClassVar[bool]  # keys and values lie in the blocks, which sequences can share
    block_bytes: int  # what a block of the cache takes, over all layers

    @abstractmethod
    def allocate(self, blocks: int) -> None:
        """Make room for so many blocks; called once, before `run`."""

    @abstractmethod
    def run_tokens(self, count: int) -> None:
        """A forward pass over so many tokens that nothing keeps; the last one's logits are wanted."""

    @abstractmethod
    def copy(self, copies: dict[int, int]) -> None:
        """What the blocks hold that the values number, to those that the keys number; called before `run`."""

    @abstractmethod
    def run(self, chunks: Items[Chunk], new_blocks: list[int]) -> torch.Tensor:
        """The logits that the chunks want, one after the other: [positions, vocabulary].

        `new_blocks` were handed out since the last run. A sequence that fails by itself has logits that are NaN.
        """
