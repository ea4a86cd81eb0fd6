"""Conversion of the model's logits into the scores by which next tokens are chosen."""

from collections.abc import Iterable
from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.messages.requests import SamplingParameters
from lmi_plugins.torch_engine.sampling.exclusions import BadSequences, BadTexts, MinLength, NoRepeatNgram
from lmi_plugins.torch_engine.sampling.grammar_mask import GrammarMask
from lmi_plugins.torch_engine.sampling.penalties import Bias, FrequencyPenalty, RepetitionPenalty
from lmi_plugins.torch_engine.sampling.selections import AllowedTokens, EndOfReasoning
from lmi_plugins.torch_engine.sampling.warpers import SAMPLING
from lmi_plugins.torch_engine.sequences.logits_processor import Condition, LogitsProcessor
from lmi_plugins.torch_engine.sequences.sequence import Sequence

# The same order as in transformers, here and in SAMPLING.
CHOICE: dict[LogitsProcessor, Condition] = {
    Bias(): lambda parameters: bool(parameters.logit_bias) or parameters.embedding_bias is not None,
    RepetitionPenalty(): lambda parameters: parameters.repetition_penalty != 1,
    FrequencyPenalty(): lambda parameters: parameters.frequency_penalty != 0 or parameters.presence_penalty != 0,
    NoRepeatNgram(): lambda parameters: parameters.no_repeat_ngram_size > 0,
    BadSequences(): lambda parameters: bool(parameters.bad_sequences),
    BadTexts(): lambda parameters: bool(parameters.bad_texts),
    AllowedTokens(): lambda parameters: parameters.allowed_ids is not None,
    MinLength(): lambda parameters: parameters.min_length > 0,
    GrammarMask(): lambda parameters: parameters.guide is not None,
    EndOfReasoning(): lambda parameters: parameters.reasoning_limit is not None,
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
        return processor.process(scores, sequences)
    index = torch.tensor(rows, device=scores.device)
    return scores.index_copy(0, index, processor.process(scores[index], [sequences[row] for row in rows]))


def processors_of(parameters: SamplingParameters) -> tuple[LogitsProcessor, ...]:
    """Return the processors of a request, in order."""
    conditions = CHOICE if parameters.greedy else CHOICE | SAMPLING
    return tuple([processor for processor, applies in conditions.items() if applies(parameters)])
