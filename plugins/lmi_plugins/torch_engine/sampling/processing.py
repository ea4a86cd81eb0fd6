"""Turns the model's logits into the scores by which next tokens are chosen."""

from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.messages.requests import SamplingParameters
from lmi_plugins.torch_engine.sampling.exclusions import BadSequences, BadTexts, MinLength, NoRepeatNgram
from lmi_plugins.torch_engine.sampling.grammar_mask import GrammarMask
from lmi_plugins.torch_engine.sampling.penalties import Bias, FrequencyPenalty, RepetitionPenalty
from lmi_plugins.torch_engine.sampling.selections import AllowedTokens, EndOfReasoning
from lmi_plugins.torch_engine.sampling.warpers import SAMPLING
from lmi_plugins.torch_engine.sequences.logits_processor import LogitsProcessor
from lmi_plugins.torch_engine.sequences.sequence import Sequence

# The order is transformers', here and in SAMPLING.
CHOICE = (
    Bias(),
    RepetitionPenalty(),
    FrequencyPenalty(),
    NoRepeatNgram(),
    BadSequences(),
    BadTexts(),
    AllowedTokens(),
    MinLength(),
    GrammarMask(),
    EndOfReasoning(),
)


def process(
    logits: torch.Tensor, sequences: Items[Sequence], order: Items[LogitsProcessor] = CHOICE + SAMPLING
) -> torch.Tensor:
    """Return the scores of logits, [rows, vocabulary], float32. A batch that asks for nothing comes back as it is.

    Each row passes the processors that its request asks for, in this order; sampled rows alone pass those of SAMPLING.
    """
    rows: dict[LogitsProcessor, list[int]] = {}
    for row, sequence in enumerate(sequences):
        for processor in _processors(sequence):
            rows.setdefault(processor, []).append(row)
    for processor in order if rows else ():
        if processor in rows:
            logits = _apply(processor, logits, sequences, rows[processor])
    return logits


def _apply(
    processor: LogitsProcessor, scores: torch.Tensor, sequences: Items[Sequence], rows: list[int]
) -> torch.Tensor:
    """Return the scores after one processor, which only these rows pass."""
    if len(rows) == len(sequences):
        return processor.process(scores, sequences)
    index = torch.tensor(rows, device=scores.device)
    return scores.index_copy(0, index, processor.process(scores[index], [sequences[row] for row in rows]))


def _processors(sequence: Sequence) -> tuple[LogitsProcessor, ...]:
    """Return the processors of a sequence, which are looked up once."""
    if sequence.processors is None:
        sequence.processors = processors_of(sequence.parameters)
    return sequence.processors


def processors_of(parameters: SamplingParameters) -> tuple[LogitsProcessor, ...]:
    """Return the processors that a request asks for, in order."""
    return tuple(processor for processor in CHOICE + SAMPLING if processor.applies(parameters))
