"""Logits processors that only sequences have that are sampled."""

from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.logits_processor import LogitsProcessor, column
from lmi_plugins.torch_engine.messages import SamplingParameters
from lmi_plugins.torch_engine.sequence import Sequence

OUT = float("-inf")


class Temperature(LogitsProcessor):
    def applies(self, parameters: SamplingParameters) -> bool:
        return not parameters.greedy and parameters.temperature != 1

    def process(self, scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
        return scores / column([sequence.parameters.temperature for sequence in sequences], scores)


class TopK(LogitsProcessor):
    def applies(self, parameters: SamplingParameters) -> bool:
        return not parameters.greedy and parameters.top_k > 0

    def process(self, scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
        top_k = [min(sequence.parameters.top_k, scores.shape[1]) for sequence in sequences]
        best = scores.topk(max(top_k)).values  # [rows, largest k]
        least = best.gather(1, torch.tensor([[k - 1] for k in top_k], device=scores.device))
        return scores.masked_fill(scores < least, OUT)


class TopP(LogitsProcessor):
    def applies(self, parameters: SamplingParameters) -> bool:
        return not parameters.greedy and parameters.top_p < 1

    def process(self, scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
        # Ascending, as transformers does it: what is left out adds up to at most 1 - top_p.
        ordered, order = scores.sort()
        limit = column([1 - sequence.parameters.top_p for sequence in sequences], scores)
        left_out = ordered.softmax(-1).cumsum(-1) <= limit
        left_out[:, -1] = False
        return scores.masked_fill(left_out.scatter(1, order, left_out), OUT)


class MinP(LogitsProcessor):
    def applies(self, parameters: SamplingParameters) -> bool:
        return not parameters.greedy and parameters.min_p > 0

    def process(self, scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
        probabilities = scores.softmax(-1)
        least = column([sequence.parameters.min_p for sequence in sequences], scores)
        return scores.masked_fill(probabilities < least * probabilities.amax(-1, keepdim=True), OUT)


class TypicalP(LogitsProcessor):
    """Keeps the tokens whose surprise is the nearest to the expected one, until they make up the probability."""

    def applies(self, parameters: SamplingParameters) -> bool:
        return not parameters.greedy and parameters.typical_p < 1

    def process(self, scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
        log_probs = scores.log_softmax(-1)
        entropy = -(log_probs * log_probs.exp()).nansum(-1, keepdim=True)
        distances, order = (-log_probs - entropy).abs().sort()
        mass = scores.gather(1, order).softmax(-1).cumsum(-1)
        limit = column([sequence.parameters.typical_p for sequence in sequences], scores)
        last = (mass < limit).sum(-1, keepdim=True).clamp(max=scores.shape[1] - 1)
        left_out = distances > distances.gather(1, last)
        return scores.masked_fill(left_out.scatter(1, order, left_out), OUT)
