"""Tokens that may come next, for the model to check several in one step."""

from dataclasses import dataclass, field

import torch

from lmi_core.errors import InvalidParameter
from lmi_plugins.torch_engine.worker.messages import EngineRequest
from lmi_plugins.torch_engine.worker.tensors import from_data


@dataclass(slots=True)
class Acceptance:
    """How good guesses were."""

    drafted: int = 0  # tokens
    accepted: int = 0  # of these

    @property
    def rate(self) -> float:
        """0 before there are any."""
        return self.accepted / max(self.drafted, 1)


@dataclass(slots=True)
class Draft:
    """A guess of the next tokens, and what it was drawn from, if it was drawn."""

    token_ids: list[int]
    probabilities: list[torch.Tensor] = field(default_factory=list)  # of each token, [vocabulary]

    def __len__(self) -> int:
        return len(self.token_ids)

    def cut(self, length: int) -> "Draft":
        """The beginning."""
        return Draft(self.token_ids[:length], self.probabilities[:length])


def read_draft(request: EngineRequest, vocabulary: int, paged: bool) -> Draft | None:
    """The one that comes with a request; raises InvalidParameter."""
    ids, logits = request.draft_ids, request.draft_logits
    if not ids and logits is None:
        return None
    if not paged:
        raise InvalidParameter("this model takes no draft tokens: it runs each sequence by itself, not in blocks")
    if request.parameters.num_beams > 1:
        raise InvalidParameter("`num_beams` above 1 and draft tokens exclude each other")
    if min(ids, default=-1) < 0 or max(ids) >= vocabulary:
        raise InvalidParameter(f"draft tokens must be ids from 0 to {vocabulary - 1}. Given: {ids}")
    if logits is None:
        return Draft(list(ids))
    if logits.shape != [len(ids), vocabulary]:
        raise InvalidParameter(f"draft logits must be of shape {[len(ids), vocabulary]}. Given: {logits.shape}")
    return Draft(list(ids), list(from_data(logits, "the draft logits").float().softmax(-1)))
