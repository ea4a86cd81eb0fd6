"""The logits processor of guided decoding."""

import logging
from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.sampling.logits_processor import LogitsProcessor, ProcessedSequence
from lmi_plugins.torch_engine.worker.messages import SamplingParameters

logger = logging.getLogger(__name__)

BITS = 32  # of the vocabulary, in each number of a mask


class GrammarMask(LogitsProcessor):
    """A mask over the tokens that a sequence's guide does not allow."""

    def applies(self, parameters: SamplingParameters) -> bool:
        return parameters.guide is not None

    def process(self, scores: torch.Tensor, sequences: Items[ProcessedSequence]) -> torch.Tensor:
        numbers = -(-scores.shape[1] // BITS)
        bitmask = torch.full((len(sequences), numbers), -1, dtype=torch.int32)
        for row, sequence in enumerate(sequences):
            _fill(bitmask, row, sequence)
        bits = torch.arange(BITS, dtype=torch.int32, device=scores.device)
        allowed = (bitmask.to(scores.device)[..., None] >> bits) & 1  # [rows, numbers, bits]
        return scores.masked_fill(allowed.flatten(1)[:, : scores.shape[1]] == 0, float("-inf"))


def _fill(bitmask: torch.Tensor, row: int, sequence: ProcessedSequence) -> None:
    """Set the bits of a sequence's row; one that does not follow its guide fails by itself."""
    assert sequence.state.matcher is not None, "a guide must be compiled before its sequence runs"
    try:
        sequence.state.matcher.fill(bitmask, row, sequence.token_ids)
    except Exception as error:  # of this sequence alone
        logger.exception("The grammar of request %s failed", sequence.request_id)
        sequence.failure = str(error)
