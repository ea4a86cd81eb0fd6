"""The most likely tokens of a position, for requests that ask for `top_logprobs`."""

from collections.abc import Sequence as Items

import torch

from lmi_core.generation.parameters import ALL_TOKENS

TopLogprobs = list[tuple[int, float]]  # token ids and log probs at one position, the most likely first


def read_top_logprobs(logits: torch.Tensor, counts: Items[int]) -> list[TopLogprobs]:
    """Return the `counts[row]` most likely tokens of each row of the model's own logits, [rows, vocabulary]."""
    if not counts:
        return []
    vocabulary = logits.shape[1]
    counts = [vocabulary if count == ALL_TOKENS else count for count in counts]
    log_probs = logits.float().log_softmax(-1)  # exactly as the sampler computes them
    best = log_probs.topk(min(max(counts), vocabulary))
    rows = zip(counts, best.indices.tolist(), best.values.tolist(), strict=True)
    return [list(zip(ids, values, strict=True))[:count] for count, ids, values in rows]
