"""Speculative decoding: tokens are drafted, and verified in one step of the model."""

import logging

from lmi_plugins.torch_engine.sampling.sampler import Sampler
from lmi_plugins.torch_engine.scheduling.scheduler import Scheduler
from lmi_plugins.torch_engine.sequences.draft import Acceptance, Draft
from lmi_plugins.torch_engine.sequences.sequence import Sequence
from lmi_plugins.torch_engine.sequences.step_batch import Chunk
from lmi_plugins.torch_engine.speculation.draft_model import DraftModel

logger = logging.getLogger(__name__)


class Speculation:
    """The drafts of requests and of a draft model, appended to chunks, and the count of accepted tokens."""

    def __init__(self, draft_model: DraftModel | None, length: int, record_acceptance_rate: bool) -> None:
        self.acceptance = Acceptance()
        self._draft_model = draft_model
        self._length = length
        self._record = record_acceptance_rate

    def extend(self, chunks: list[Chunk], scheduler: Scheduler, sampler: Sampler) -> None:
        """Append drafts to the chunks, which changes their order."""
        lengths = {chunk.sequence: length for chunk in chunks if (length := self._draft_length(chunk, scheduler))}
        if self._draft_model is not None:
            self._draft(self._draft_model, chunks, lengths, scheduler, sampler)
        for chunk in chunks:
            given = chunk.sequence.draft
            if given is not None and chunk.sequence in lengths:
                chunk.sequence.draft = None
                _append(chunk, given.truncate(lengths[chunk.sequence]))
                chunk.sequence.token_ids += given.token_ids[: lengths[chunk.sequence]]
        chunks.sort(key=len)

    def record(self, sequence: Sequence) -> None:
        """Log how many of an ended sequence's draft tokens were accepted, if the options ask for it."""
        own = sequence.acceptance
        if self._record:
            logger.info(
                "Request %s: %d of %d draft tokens accepted (%.0f%%); of all requests so far %.0f%%",
                sequence.request_id,
                own.accepted,
                own.drafted,
                100 * own.rate,
                100 * self.acceptance.rate,
            )

    def _draft_length(self, chunk: Chunk, scheduler: Scheduler) -> int:
        """Return the number of tokens to draft after the chunk, and reserve cache for them."""
        sequence = chunk.sequence
        if not chunk.samples or not chunk.group.sampled or sequence.wants_whole_prompt:
            return 0
        if sequence.draft is not None:
            wanted = len(sequence.draft)
        else:
            wanted = self._length if self._draft_model is not None and sequence.soft_prompt is None else 0
        wanted = min(wanted, sequence.max_length - len(sequence.token_ids) - 1)  # the model itself adds one token
        if sequence.recompute_beyond is not None:
            wanted = min(wanted, sequence.recompute_beyond - len(sequence.token_ids))
        return wanted if wanted > 0 and scheduler.reserve(sequence, wanted) else 0

    def _draft(
        self,
        model: DraftModel,
        chunks: list[Chunk],
        lengths: dict[Sequence, int],
        scheduler: Scheduler,
        sampler: Sampler,
    ) -> None:
        # The draft model cannot read a soft prompt, and beams branch too often.
        readable = [each for each in chunks if each.group.sampled and each.sequence.soft_prompt is None]
        drafted = {sequence: length for sequence, length in lengths.items() if sequence.draft is None}
        # All tokens read become part of the prefix cache, so prompts are read even if nothing is drafted.
        read = [chunk for chunk in readable if len(chunk) > 1 or chunk.sequence in drafted]
        if read:
            drafts = model.draft(read, drafted, scheduler.new_blocks, sampler)
            for chunk in read:
                if chunk.sequence in drafts:
                    _append(chunk, drafts[chunk.sequence])


def _append(chunk: Chunk, draft: Draft) -> None:
    """Append the draft's tokens, which are already the last ones of the sequence, to the chunk."""
    chunk.draft = draft
    chunk.end += len(draft)
