"""The interface of logits processors, which change the scores for the next token."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import Protocol

import torch

from lmi_core.errors import LmiError
from lmi_plugins.torch_engine.messages.requests import SamplingParameters
from lmi_plugins.torch_engine.sequences.processor_state import ProcessorState


class ProcessedSequence(Protocol):
    """The part of a sequence that logits processors read."""

    request_id: str
    parameters: SamplingParameters
    token_ids: list[int]  # prompt and generated tokens
    prompt_length: int
    eos_token_ids: frozenset[int]
    state: ProcessorState
    failure: LmiError | str | None  # set by a processor that cannot continue the sequence


class LogitsProcessor(ABC):
    """A logits processor. It is shared by all sequences; its state for each is in `sequence.state`."""

    @abstractmethod
    def process(self, scores: torch.Tensor, sequences: Items[ProcessedSequence]) -> torch.Tensor:
        """Return new scores for the requesting sequences, given their scores, [rows, vocabulary], which stay
        unchanged.
        """


Condition = Callable[[SamplingParameters], bool]  # whether a request with these parameters needs a processor


def column(values: Items[float], like: torch.Tensor) -> torch.Tensor:
    """Return a number for each row as a tensor, [rows, 1], of the type and device of `like`."""
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]
