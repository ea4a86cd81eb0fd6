"""The interface of what runs the model over a step's batch."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch

from lmi_plugins.torch_engine.adapters.store import AdapterStore
from lmi_plugins.torch_engine.sequences.step_batch import StepBatch


def _unheard() -> None:
    """Tell nobody."""


class ModelRunner(ABC):
    """A model and the keys and values of what it ran. Which blocks these take is the scheduler's choice."""

    adapters: AdapterStore | None = None  # told before each forward pass which adapters are in it
    progress: Callable[[], None] = staticmethod(_unheard)  # called several times in each forward pass
    paged: ClassVar[bool]  # keys and values lie in the blocks, which sequences can share
    block_bytes: int  # what a block of the cache takes, over all layers

    @abstractmethod
    def allocate(self, blocks: int) -> None:
        """Make room for that number of blocks; called once, before `run`."""

    @abstractmethod
    def run_tokens(self, count: int) -> None:
        """Run a forward pass over `count` tokens that nothing keeps, with logits for the last one alone."""

    @abstractmethod
    def copy(self, copies: dict[int, int]) -> None:
        """Copy block `source` to block `target` for each `target: source`; called before `run`."""

    @abstractmethod
    def run(self, batch: StepBatch, new_blocks: list[int]) -> torch.Tensor:
        """Return the logits that the batch's chunks want, [rows, vocabulary], as `batch.logits_rows` has them.

        `new_blocks` were handed out since the last run. A sequence that fails by itself has logits that are NaN.
        """
