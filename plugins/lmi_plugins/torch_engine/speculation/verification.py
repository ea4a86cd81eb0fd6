"""Verification of drafted tokens by the model."""

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import torch

from lmi_core.errors import LmiError
from lmi_plugins.torch_engine.messages.results import Result, Results
from lmi_plugins.torch_engine.sampling.outcome import Outcome, choose, keep_generation_logits
from lmi_plugins.torch_engine.sampling.sampler import DraftToken, Sampler
from lmi_plugins.torch_engine.sequences.draft import Acceptance, Draft
from lmi_plugins.torch_engine.sequences.sequence import Sequence
from lmi_plugins.torch_engine.sequences.step_batch import Chunk, StepBatch

Take = Callable[[Chunk, Outcome], tuple[str, Result] | None]  # adds a token to the chunk's sequence


@dataclass(slots=True)
class Check:
    """One sequence's draft, and the model's logits for it."""

    chunk: Chunk
    draft: Draft
    logits: torch.Tensor  # [draft tokens + 1, vocabulary]: before each of its tokens, and after the last
    total: Acceptance  # over all drafts
    results: Results = field(default_factory=list)

    @property
    def sequence(self) -> Sequence:
        return self.chunk.sequence


def begin_checks(batch: StepBatch, logits: torch.Tensor, total: Acceptance) -> list[Check]:
    """Remove the drafts of the batch from their sequences, to verify each with its rows of the logits."""
    checks = []
    for chunk in batch.chunks:
        if chunk.draft is not None:
            end = batch.next_token_rows[chunk.sequence] + 1
            checks.append(Check(chunk, chunk.draft, logits[end - 1 - len(chunk.draft) : end], total))
    for check in checks:
        del check.sequence.token_ids[-len(check.draft) :]
        check.sequence.acceptance.drafted += len(check.draft)
        total.drafted += len(check.draft)
    return checks


def verify(checks: Items[Check], sampler: Sampler, take: Take) -> None:
    """Choose tokens one by one, as without a draft, as long as they equal the drafted ones."""
    plain = [check for check in checks if _is_plain(check.sequence)]
    if plain:
        _verify_plain(plain, sampler, take)
    position, unfinished = 0, [check for check in checks if not _is_plain(check.sequence)]
    while unfinished:
        logits = torch.stack([check.logits[position] for check in unfinished])
        drawn = [_draft(check, position) for check in unfinished]
        outcomes = choose(logits, [check.sequence for check in unfinished], sampler, drawn)
        pairs = list(zip(unfinished, outcomes, strict=True))
        unfinished = [check for check, outcome in pairs if _take(check, position, outcome, take)]
        position += 1
    for check in checks:
        sequence = check.sequence
        sequence.num_draft_computed_tokens = min(sequence.num_draft_computed_tokens, sequence.num_computed_tokens)


def _is_plain(sequence: Sequence) -> bool:
    """Return whether the choice of a token depends only on its own logits."""
    return sequence.parameters.greedy and sequence.processors == ()


def _verify_plain(checks: Items[Check], sampler: Sampler, take: Take) -> None:
    """Check all positions of all drafts at once."""
    sequences = [check.sequence for check in checks for _ in check.logits]
    outcomes = iter(choose(torch.cat([check.logits for check in checks]), sequences, sampler))
    for check in checks:
        own = [next(outcomes) for _ in check.logits]
        for position, outcome in enumerate(own):
            if not _take(check, position, outcome, take):
                break


def _draft(check: Check, position: int) -> DraftToken | None:
    """Return the drafted token and its distribution, if known and useful."""
    if check.sequence.parameters.greedy or position >= len(check.draft.probabilities):
        return None
    return check.draft.token_ids[position], check.draft.probabilities[position]


def _take(check: Check, position: int, outcome: Outcome, take: Take) -> bool:
    """Add the chosen token to its sequence; return whether the draft's next token can be checked too."""
    sequence = check.sequence
    if sequence.parameters.generation_logits:
        keep_generation_logits(sequence, check.logits[position])
    accepted = position < len(check.draft) and outcome.token_id == check.draft.token_ids[position]
    if accepted:
        sequence.acceptance.accepted += 1
        check.total.accepted += 1
    result = take(check.chunk, outcome)
    if result is not None:
        check.results.append(result)
        if isinstance(result[1], LmiError) or result[1].finish_reason is not None:
            return False
    if accepted:
        sequence.num_computed_tokens += 1
    return accepted
