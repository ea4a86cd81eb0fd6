"""The likeliest tokens in a place, for requests that ask for them."""

from collections.abc import Sequence as Items

import torch

from lmi_core.parameters import ALL_TOKENS
from lmi_plugins.torch_engine.sequence import Likeliest


def read_likeliest(logits: torch.Tensor, counts: Items[int]) -> list[Likeliest]:
    """logits: [rows, vocabulary], the model's own; counts: how many for each row, or ALL_TOKENS."""
    if not counts:
        return []
    vocabulary = logits.shape[1]
    counts = [vocabulary if count == ALL_TOKENS else count for count in counts]
    log_probs = logits.float().log_softmax(-1)  # as the sampler's, to the last digit
    best = log_probs.topk(min(max(counts), vocabulary))
    rows = zip(counts, best.indices.tolist(), best.values.tolist(), strict=True)
    return [list(zip(ids, values, strict=True))[:count] for count, ids, values in rows]
