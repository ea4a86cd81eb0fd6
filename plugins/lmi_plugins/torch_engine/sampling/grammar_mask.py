"""The logits processor of guided decoding."""

import logging
from collections.abc import Sequence as Items
from functools import partial

import torch

from lmi_plugins.torch_engine.guides.grammar_matcher import Matcher
from lmi_plugins.torch_engine.sampling.mask_thread import Masks, MaskThread
from lmi_plugins.torch_engine.sequences.sequence import Sequence

logger = logging.getLogger(__name__)

BITS = 32  # tokens of the vocabulary per number of a mask


class GrammarMask:
    """A mask over the tokens that a sequence's guide does not allow."""

    def __init__(self) -> None:
        self._thread: MaskThread | None = None

    def process(self, scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
        bitmask = self._bitmask(sequences, -(-scores.shape[1] // BITS))
        bits = torch.arange(BITS, dtype=torch.int32, device=scores.device)
        allowed = (bitmask.to(scores.device)[..., None] >> bits) & 1  # [rows, numbers, bits]
        return scores.masked_fill(allowed.flatten(1)[:, : scores.shape[1]] == 0, float("-inf"))

    def _bitmask(self, sequences: Items[Sequence], numbers: int) -> torch.Tensor:
        """Return the masks of all sequences; one whose mask takes too long fails alone."""
        bitmask = torch.full((len(sequences), numbers), -1, dtype=torch.int32)
        first = 0
        while first < len(sequences):
            thread = self._thread = self._thread or MaskThread()
            rows = range(first, len(sequences))
            masks = Masks([partial(_fill, bitmask, row, sequences[row]) for row in rows])
            thread.begin(masks)
            slow = masks.wait([_matcher(sequences[row]).mask_seconds for row in rows], thread)
            if slow is None:
                break
            thread.leave()
            self._thread = None
            bitmask = bitmask.clone()  # the thread still writes to the original
            bitmask[first + slow] = -1
            sequence = sequences[first + slow]
            sequence.failure = _matcher(sequence).give_up(thread.thread)
            logger.warning("Request %s ends: %s", sequence.request_id, sequence.failure)
            first += slow + 1
        return bitmask


def _matcher(sequence: Sequence) -> Matcher:
    assert sequence.state.matcher is not None, "a guide must be compiled before its sequence runs"
    return sequence.state.matcher


def _fill(bitmask: torch.Tensor, row: int, sequence: Sequence) -> None:
    """Set the bits of a sequence's row; a sequence that does not follow its guide fails alone."""
    try:
        _matcher(sequence).fill(bitmask, row, sequence.token_ids)
    except Exception as error:  # affects only this sequence
        logger.exception("The grammar of request %s failed", sequence.request_id)
        sequence.failure = str(error)
