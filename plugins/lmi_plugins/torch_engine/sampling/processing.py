"""Conversion of the model's logits into the scores by which next tokens are chosen."""

from collections.abc import Iterable
from collections.abc import Sequence as Items
from functools import partial

import torch

from lmi_plugins.torch_engine.messages.requests import SamplingParameters
from lmi_plugins.torch_engine.sampling.exclusions import (
    bad_sequences,
    early_ends,
    end_reasoning,
    exclude,
    exclude_bad_texts,
    keep_allowed_tokens,
    repeated_ngrams,
)
from lmi_plugins.torch_engine.sampling.grammar_mask import GrammarMask
from lmi_plugins.torch_engine.sampling.penalties import add_bias, penalize_frequency, penalize_repetition
from lmi_plugins.torch_engine.sampling.warpers import SAMPLING, Condition
from lmi_plugins.torch_engine.sequences.sequence import LogitsProcessor, Sequence

# The same order as in transformers, here and in SAMPLING.
CHOICE: dict[LogitsProcessor, Condition] = {
    add_bias: lambda parameters: bool(parameters.logit_bias) or parameters.embedding_bias is not None,
    penalize_repetition: lambda parameters: parameters.repetition_penalty != 1,
    penalize_frequency: lambda parameters: parameters.frequency_penalty != 0 or parameters.presence_penalty != 0,
    partial(exclude, repeated_ngrams): lambda parameters: parameters.no_repeat_ngram_size > 0,
    partial(exclude, bad_sequences): lambda parameters: bool(parameters.bad_sequences),
    exclude_bad_texts: lambda parameters: bool(parameters.bad_texts),
    keep_allowed_tokens: lambda parameters: parameters.allowed_ids is not None,
    partial(exclude, early_ends): lambda parameters: parameters.min_length > 0,
    GrammarMask().process: lambda parameters: parameters.guide is not None,
    end_reasoning: lambda parameters: parameters.reasoning_limit is not None,
}


def process(
    logits: torch.Tensor, sequences: Items[Sequence], order: Iterable[LogitsProcessor] = (*CHOICE, *SAMPLING)
) -> torch.Tensor:
    """Return the scores of logits, [rows, vocabulary], float32. If no request needs a processor, the logits are
    returned unchanged.

    Each row passes through the processors of its request, in this order; only sampled rows pass through those of
    SAMPLING.
    """
    rows: dict[LogitsProcessor, list[int]] = {}
    for row, sequence in enumerate(sequences):
        if sequence.processors is None:
            sequence.processors = processors_of(sequence.parameters)
        for processor in sequence.processors:
            rows.setdefault(processor, []).append(row)
    for processor in order if rows else ():
        if processor in rows:
            logits = _apply(processor, logits, sequences, rows[processor])
    return logits


def _apply(
    processor: LogitsProcessor, scores: torch.Tensor, sequences: Items[Sequence], rows: list[int]
) -> torch.Tensor:
    """Return the scores after one processor, applied only to these rows."""
    if len(rows) == len(sequences):
        return processor(scores, sequences)
    index = torch.tensor(rows, device=scores.device)
    return scores.index_copy(0, index, processor(scores[index], [sequences[row] for row in rows]))


def processors_of(parameters: SamplingParameters) -> tuple[LogitsProcessor, ...]:
    """Return the processors of a request, in order."""
    conditions = CHOICE if parameters.greedy else CHOICE | SAMPLING
    return tuple([processor for processor, applies in conditions.items() if applies(parameters)])
