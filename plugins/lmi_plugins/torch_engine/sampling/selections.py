"""Logits processors that leave only the tokens which a request names."""

from collections.abc import Sequence as Items

import torch

from lmi_core.generation.reasoning_budget import ReasoningBudget, ReasoningCountdown
from lmi_plugins.torch_engine.sequences.logits_processor import LogitsProcessor, ProcessedSequence


class AllowedTokens(LogitsProcessor):
    """The tokens that the request allows, and no others; the end-of-sequence token is no exception."""

    def process(self, scores: torch.Tensor, sequences: Items[ProcessedSequence]) -> torch.Tensor:
        left = torch.full_like(scores, float("-inf"))
        for row, sequence in enumerate(sequences):
            ids = _allowed_ids(sequence, scores.device)
            left[row, ids] = scores[row, ids]
        return left


class EndOfReasoning(LogitsProcessor):
    """Only the next token of the end marker, when the reasoning reaches its limit.

    It runs after the other processors, because none of them may keep the reasoning from ending.
    """

    def process(self, scores: torch.Tensor, sequences: Items[ProcessedSequence]) -> torch.Tensor:
        forced = {row: token_id for row, each in enumerate(sequences) if (token_id := _next_id(each)) is not None}
        if not forced:
            return scores
        scores = scores.clone()
        for row, token_id in forced.items():
            scores[row] = float("-inf")
            scores[row, token_id] = 0.0
        return scores


def _allowed_ids(sequence: ProcessedSequence, device: torch.device) -> torch.Tensor:
    state = sequence.state
    if state.allowed_ids is None:
        state.allowed_ids = torch.tensor(sequence.parameters.allowed_ids, dtype=torch.long, device=device)
    return state.allowed_ids


def _next_id(sequence: ProcessedSequence) -> int | None:
    limit, state = sequence.parameters.reasoning_limit, sequence.state
    assert limit is not None, "only requests with a limit have this processor"
    if state.reasoning is None:
        budget = ReasoningBudget(tokens=limit.tokens, starts=limit.starts, ends=limit.ends, inside=limit.inside)
        state.reasoning = ReasoningCountdown(budget)
    return state.reasoning.forced_token(sequence.token_ids[sequence.prompt_length :])
