"""The interface of model runners, which run the model over a step's batch."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch

from lmi_plugins.torch_engine.adapters.store import AdapterStore
from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE
from lmi_plugins.torch_engine.model.rope_by_length import RopeByLength
from lmi_plugins.torch_engine.sequences.step_batch import StepBatch


def _unheard() -> None:
    """Tell nobody."""


class UnsupportedGraph(Exception):
    """OpenVINO cannot compute a model."""


class ModelRunner(ABC):
    """A model and its KV cache. The scheduler chooses the blocks."""

    adapters: AdapterStore | None = None  # informed before each forward pass which adapters it uses
    progress: Callable[[], None] = staticmethod(_unheard)  # called several times in each forward pass
    paged: ClassVar[bool]  # keys and values are in blocks, which sequences can share
    rewinds: bool = False  # whether a sequence can return to an earlier token, for rejected drafts
    state_bytes: int = 0  # memory of a sequence in addition to its blocks
    rope: RopeByLength | None = None  # set if the length of a sequence matters
    splits_prompts: bool = True  # whether a prompt can be computed in several steps
    block_size: int = BLOCK_SIZE  # tokens
    block_bytes: int  # memory of a block, over all layers

    @abstractmethod
    def allocate(self, blocks: int) -> None:
        """Allocate that number of blocks; called once, before `run`."""

    @abstractmethod
    def run_tokens(self, count: int) -> None:
        """Run a forward pass over `count` tokens without keeping them, with logits only for the last one."""

    @abstractmethod
    def copy(self, copies: dict[int, int]) -> None:
        """Copy block `source` to block `target` for each `target: source`; called before `run`."""

    @abstractmethod
    def run(self, batch: StepBatch, new_blocks: list[int]) -> torch.Tensor:
        """Return the requested logits, [rows, vocabulary], in the order of `batch.logits_rows`.

        `new_blocks` were allocated since the last run. A sequence that fails alone has NaN logits.
        """
