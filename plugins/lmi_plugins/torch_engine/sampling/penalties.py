"""Logits processors that make tokens more or less likely."""

from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.messages.requests import SamplingParameters
from lmi_plugins.torch_engine.sequences.logits_processor import LogitsProcessor, ProcessedSequence, column
from lmi_plugins.torch_engine.sequences.processor_state import TokenCounts


class Bias(LogitsProcessor):
    """A request's biases of tokens, added to their scores."""

    def process(self, scores: torch.Tensor, sequences: Items[ProcessedSequence]) -> torch.Tensor:
        return scores + torch.stack([_bias(sequence, scores) for sequence in sequences])


class RepetitionPenalty(LogitsProcessor):
    """A factor that lowers the scores of tokens that have occurred, including in the prompt, as in transformers."""

    def process(self, scores: torch.Tensor, sequences: Items[ProcessedSequence]) -> torch.Tensor:
        seen = torch.stack([_token_counts(sequence, scores) for sequence in sequences]) > 0
        penalty = column([sequence.parameters.repetition_penalty for sequence in sequences], scores)
        return torch.where(seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)


class FrequencyPenalty(LogitsProcessor):
    """Lowered scores of generated tokens: once for presence, and each time for frequency, as in OpenAI's API.

    With `penalize_prompt`, as in TensorRT-LLM, the tokens of the prompt count too.
    """

    def process(self, scores: torch.Tensor, sequences: Items[ProcessedSequence]) -> torch.Tensor:
        counts = torch.stack([_penalized_counts(sequence, scores) for sequence in sequences])
        frequency = column([sequence.parameters.frequency_penalty for sequence in sequences], scores)
        presence = column([sequence.parameters.presence_penalty for sequence in sequences], scores)
        return scores - frequency * counts - presence * (counts > 0)


def _bias(sequence: ProcessedSequence, scores: torch.Tensor) -> torch.Tensor:
    """Return the sequence's biases, [vocabulary], which are created once."""
    state = sequence.state
    if state.bias is None:
        state.bias = dense_bias(sequence.parameters, scores.shape[1]).to(scores.device)
    return state.bias


def dense_bias(parameters: SamplingParameters, vocabulary: int) -> torch.Tensor:
    """Return the biases of a request for the whole vocabulary, [vocabulary], float32."""
    bias = torch.zeros(vocabulary)
    if parameters.embedding_bias is not None:
        bias += torch.frombuffer(bytearray(parameters.embedding_bias), dtype=torch.float32)
    for token_id, added in parameters.logit_bias.items():
        bias[token_id] += added
    return bias


def _token_counts(sequence: ProcessedSequence, scores: torch.Tensor) -> torch.Tensor:
    """Return how often each token has occurred, including in the prompt, [vocabulary]."""
    state = sequence.state
    if state.token_counts is None:
        state.token_counts = TokenCounts(0, scores.shape[1], scores.device)
    return state.token_counts.of(sequence.token_ids)


def _penalized_counts(sequence: ProcessedSequence, scores: torch.Tensor) -> torch.Tensor:
    """Return the counts for presence and frequency penalties, [vocabulary]."""
    counts = _token_counts if sequence.parameters.penalize_prompt else _generated_counts
    return counts(sequence, scores)


def _generated_counts(sequence: ProcessedSequence, scores: torch.Tensor) -> torch.Tensor:
    """Return how often each token was generated, [vocabulary]."""
    state = sequence.state
    if state.generated_counts is None:
        state.generated_counts = TokenCounts(sequence.prompt_length, scores.shape[1], scores.device)
    return state.generated_counts.of(sequence.token_ids)
