"""What one forward pass gives."""

from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch

from lmi_plugins.torch_engine.beams.search import BeamSearch
from lmi_plugins.torch_engine.sampling.outcome import Outcome
from lmi_plugins.torch_engine.sequences.step_batch import StepBatch
from lmi_plugins.torch_engine.speculation.verification import Check


@dataclass(frozen=True, slots=True)
class StepOutput:
    """The logits of a batch, and what is to be made of them."""

    batch: StepBatch
    logits: torch.Tensor  # [rows, vocabulary]
    outcomes: Items[Outcome]  # of each chunk
    searches: Items[tuple[BeamSearch, list[int]]]  # beam searches, and the rows of their beams
    checks: Items[Check]  # drafts, taken off their sequences
