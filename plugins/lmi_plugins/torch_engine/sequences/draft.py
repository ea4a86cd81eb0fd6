"""Drafts: likely next tokens, which the model checks in one step."""

from dataclasses import dataclass, field

import torch

from lmi_core.errors import InvalidParameter
from lmi_plugins.torch_engine.messages.requests import EngineRequest, ParameterNames
from lmi_plugins.torch_engine.messages.tensors import from_data


@dataclass(slots=True)
class Acceptance:
    """The number of accepted drafted tokens."""

    drafted: int = 0  # tokens
    accepted: int = 0  # of the drafted tokens

    @property
    def rate(self) -> float:
        """The accepted share of the drafted tokens; 0 before there are any."""
        return self.accepted / max(self.drafted, 1)


@dataclass(slots=True)
class Draft:
    """Likely next tokens, and the distributions from which they were sampled, if any."""

    token_ids: list[int]
    probabilities: list[torch.Tensor] = field(default_factory=list)  # distribution of each token, [vocabulary]

    def __len__(self) -> int:
        return len(self.token_ids)

    def truncate(self, length: int) -> "Draft":
        """Return the draft of the first `length` tokens."""
        return Draft(self.token_ids[:length], self.probabilities[:length])


def read_draft(request: EngineRequest, vocabulary: int, rewinds: bool, names: ParameterNames) -> Draft:
    """Return the draft that comes with a request; raise InvalidParameter if it cannot be used."""
    ids, logits = request.draft_ids, request.draft_logits
    if not rewinds:
        raise InvalidParameter(
            f"{names.draft_ids} is not supported by this model, which cannot roll back tokens, as rejected drafts "
            f"require"
        )
    if request.parameters.num_beams > 1:
        raise InvalidParameter(f"{names.num_beams} above 1 and {names.draft_ids} cannot be used together")
    if min(ids, default=-1) < 0 or max(ids) >= vocabulary:
        raise InvalidParameter(f"{names.draft_ids} must be ids from 0 to {vocabulary - 1}. Given: {ids}")
    if logits is None:
        return Draft(list(ids))
    if logits.shape != [len(ids), vocabulary]:
        raise InvalidParameter(f"draft logits must be of shape {[len(ids), vocabulary]}. Given: {logits.shape}")
    return Draft(list(ids), list(from_data(logits, "the draft logits").float().softmax(-1)))
