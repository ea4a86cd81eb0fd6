"""Logits processors that only sampled sequences have, not greedy ones."""

from collections.abc import Callable
from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.messages.requests import SamplingParameters
from lmi_plugins.torch_engine.sequences.sequence import LogitsProcessor, Sequence

EXCLUDED = float("-inf")
FIRST_CANDIDATES = 256  # tokens

Condition = Callable[[SamplingParameters], bool]  # whether a request with these parameters needs a processor


def column(values: Items[float], like: torch.Tensor) -> torch.Tensor:
    """Return a number for each row as a tensor, [rows, 1], of the type and device of `like`."""
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]


def divide_by_temperature(scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
    return scores / column([sequence.parameters.temperature for sequence in sequences], scores)


def keep_top_k(scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
    """Keep the k most likely tokens."""
    top_k = [min(sequence.parameters.top_k, scores.shape[1]) for sequence in sequences]
    best = scores.topk(max(top_k)).values  # [rows, largest k]
    least = best.gather(1, torch.tensor([[k - 1] for k in top_k], device=scores.device))
    return scores.masked_fill(scores < least, EXCLUDED)


def keep_top_p(scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
    """Keep the most likely tokens that make up the probability p."""
    # From the least likely, as in transformers: excluded tokens add up to at most 1 - top_p.
    limit = column([1 - sequence.parameters.top_p for sequence in sequences], scores)
    probabilities = scores.softmax(-1)
    ordered, order = probabilities.topk(_possible(probabilities, limit))
    rest = (probabilities.sum(-1, keepdim=True) - ordered.sum(-1, keepdim=True)).clamp(min=0)
    excluded = ordered.flip(1).cumsum(-1).add(rest).flip(1) <= limit
    excluded[:, 0] = False
    return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).scatter(1, order, excluded), EXCLUDED)


def _possible(probabilities: torch.Tensor, limit: torch.Tensor) -> int:
    """Return how many tokens may be kept: those below an equal share of the limit are excluded together."""
    vocabulary = probabilities.shape[1]
    if probabilities.device.type != "cpu":  # on the CPU, waiting for the count costs less than sorting all
        return vocabulary
    return max(1, int((probabilities * vocabulary > limit).sum(-1).max()))


def keep_min_p(scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
    """Keep the tokens that are at least `min_p` times as likely as the most likely one."""
    probabilities = scores.softmax(-1)
    least = column([sequence.parameters.min_p for sequence in sequences], scores)
    return scores.masked_fill(probabilities < least * probabilities.amax(-1, keepdim=True), EXCLUDED)


def keep_typical(scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
    """Keep the tokens whose surprise is nearest to the expected one, and that make up the probability."""
    log_probs = scores.log_softmax(-1)
    probabilities = log_probs.exp()
    entropy = -(log_probs * probabilities).nansum(-1, keepdim=True)
    distances = (-log_probs - entropy).abs()
    limit = column([sequence.parameters.typical_p for sequence in sequences], scores)
    return scores.masked_fill(distances > _farthest(distances, probabilities, limit), EXCLUDED)


def _farthest(distances: torch.Tensor, probabilities: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    """Return the distance at which the nearest tokens make up the probability, [rows, 1]."""
    vocabulary = distances.shape[1]
    # A few are usually enough; outside the CPU, sorting all costs less than waiting for the count.
    count = min(FIRST_CANDIDATES, vocabulary) if distances.device.type == "cpu" else vocabulary
    while True:
        nearest, order = distances.topk(count, largest=False)
        mass = probabilities.gather(1, order).cumsum(-1)
        if count == vocabulary or bool((mass[:, -1:] >= limit).all()):
            return nearest.gather(1, (mass < limit).sum(-1, keepdim=True).clamp(max=count - 1))
        count = min(8 * count, vocabulary)


# The order is the same as in transformers. vLLM applies min_p before top-k, and has no typical_p.
SAMPLING: dict[LogitsProcessor, Condition] = {
    divide_by_temperature: lambda parameters: parameters.temperature != 1,
    keep_top_k: lambda parameters: parameters.top_k > 0,
    keep_top_p: lambda parameters: parameters.top_p < 1,
    keep_min_p: lambda parameters: parameters.min_p > 0,
    keep_typical: lambda parameters: parameters.typical_p < 1,
}
