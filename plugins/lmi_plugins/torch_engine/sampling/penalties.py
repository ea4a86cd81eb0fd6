"""Logits processors that make tokens more or less likely."""

from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.sampling.warpers import column
from lmi_plugins.torch_engine.sequences.processor_state import TokenCounts
from lmi_plugins.torch_engine.sequences.sequence import Sequence


def add_bias(scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
    """Add a request's biases of tokens to their scores."""
    return scores + torch.stack([_bias(sequence, scores) for sequence in sequences])


def penalize_repetition(scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
    """Lower the scores of tokens that have occurred by a factor, including in the prompt, as transformers does."""
    seen = torch.stack([_token_counts(sequence, scores) for sequence in sequences]) > 0
    penalty = column([sequence.parameters.repetition_penalty for sequence in sequences], scores)
    return torch.where(seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)


def penalize_frequency(scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
    """Lower the scores of generated tokens: once for presence, and each time for frequency, as in OpenAI's API.

    With `penalize_prompt`, as in TensorRT-LLM, the tokens of the prompt count too.
    """
    counts = torch.stack(
        [
            _token_counts(each, scores) if each.parameters.penalize_prompt else _generated_counts(each, scores)
            for each in sequences
        ]
    )
    frequency = column([sequence.parameters.frequency_penalty for sequence in sequences], scores)
    presence = column([sequence.parameters.presence_penalty for sequence in sequences], scores)
    return scores - frequency * counts - presence * (counts > 0)


def _bias(sequence: Sequence, scores: torch.Tensor) -> torch.Tensor:
    """Return the sequence's biases, [vocabulary], float32, which are created once."""
    state, parameters = sequence.state, sequence.parameters
    if state.bias is None:
        bias = torch.zeros(scores.shape[1])
        if parameters.embedding_bias is not None:
            bias += torch.frombuffer(bytearray(parameters.embedding_bias), dtype=torch.float32)
        for token_id, added in parameters.logit_bias.items():
            bias[token_id] += added
        state.bias = bias.to(scores.device)
    return state.bias


def _token_counts(sequence: Sequence, scores: torch.Tensor) -> torch.Tensor:
    """Return how often each token has occurred, including in the prompt, [vocabulary]."""
    state = sequence.state
    if state.token_counts is None:
        state.token_counts = TokenCounts(0, scores.shape[1], scores.device)
    return state.token_counts.of(sequence.token_ids)


def _generated_counts(sequence: Sequence, scores: torch.Tensor) -> torch.Tensor:
    """Return how often each token was generated, [vocabulary]."""
    state = sequence.state
    if state.generated_counts is None:
        state.generated_counts = TokenCounts(sequence.prompt_length, scores.shape[1], scores.device)
    return state.generated_counts.of(sequence.token_ids)
