"""The seam to a way in which requests change what their next token is chosen by."""

from abc import ABC, abstractmethod
from collections.abc import Sequence as Items
from typing import TYPE_CHECKING

import torch

from lmi_plugins.torch_engine.worker.messages import SamplingParameters

if TYPE_CHECKING:  # a sequence holds its processors
    from lmi_plugins.torch_engine.sequence import Sequence


class LogitsProcessor(ABC):
    """There is one of each; what it remembers of a sequence is the sequence's own."""

    @abstractmethod
    def applies(self, parameters: SamplingParameters) -> bool:
        """Whether a request asks for it."""

    @abstractmethod
    def process(self, scores: torch.Tensor, sequences: "Items[Sequence]") -> torch.Tensor:
        """scores: [rows, vocabulary], of sequences that ask for it; is left as it is, and gives new ones."""


def column(values: Items[float], like: torch.Tensor) -> torch.Tensor:
    """[rows, 1]: a number for each row."""
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]
