"""Which of the drafted tokens the model would have chosen itself."""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import torch

from lmi_core.errors import LmiError
from lmi_core.generation import GenerationStep
from lmi_plugins.torch_engine.sampling.outcome import Outcome, choose
from lmi_plugins.torch_engine.sampling.sampler import Sampler
from lmi_plugins.torch_engine.sequence import Chunk, Sequence
from lmi_plugins.torch_engine.speculation.draft import Acceptance, Draft

Result = GenerationStep | LmiError
Take = Callable[[Sequence, Outcome], tuple[str, Result] | None]  # the sequence gains a token


@dataclass(slots=True)
class Check:
    """One sequence's draft, and what the model makes of it."""

    sequence: Sequence
    draft: Draft
    logits: torch.Tensor  # [tokens of the draft + 1, vocabulary]: before each of its tokens, and after the last
    total: Acceptance  # of all drafts
    results: list[tuple[str, Result]] = field(default_factory=list)


def begin_checks(chunks: Items[Chunk], logits: torch.Tensor, total: Acceptance) -> list[Check]:
    """logits: [positions, vocabulary], of the positions that the chunks want. Takes the drafts off the sequences."""
    checks, offset = [], 0
    for chunk in chunks:
        offset += chunk.end - chunk.logits_start
        if chunk.draft is not None:
            checks.append(Check(chunk.sequence, chunk.draft, logits[offset - len(chunk.draft) - 1 : offset], total))
    for check in checks:
        del check.sequence.token_ids[-len(check.draft) :]
        check.sequence.acceptance.drafted += len(check.draft)
        total.drafted += len(check.draft)
    return checks


def verify(checks: Items[Check], sampler: Sampler, take: Take) -> None:
    """Choose one token after the other, as without a draft, for as long as that is what was drafted."""
    plain = [check for check in checks if _is_plain(check.sequence)]
    if plain:
        _verify_plain(plain, sampler, take)
    position, going_on = 0, [check for check in checks if not _is_plain(check.sequence)]
    while going_on:
        outcomes = _choose(going_on, position, sampler)
        pairs = list(zip(going_on, outcomes, strict=True))
        going_on = [check for check, outcome in pairs if _take(check, position, outcome, take)]
        position += 1
    for check in checks:
        check.sequence.draft_computed = min(check.sequence.draft_computed, check.sequence.computed)


def _is_plain(sequence: Sequence) -> bool:
    """Whether the choice of a token depends on nothing but its own logits."""
    return sequence.parameters.greedy and sequence.processors == ()


def _verify_plain(checks: Items[Check], sampler: Sampler, take: Take) -> None:
    """All places of all drafts at once."""
    sequences = [check.sequence for check in checks for _ in check.logits]
    outcomes = iter(choose(torch.cat([check.logits for check in checks]), sequences, sampler))
    for check in checks:
        own = [next(outcomes) for _ in check.logits]
        for position, outcome in enumerate(own):
            if not _take(check, position, outcome, take):
                break


def _choose(checks: Items[Check], position: int, sampler: Sampler) -> Items[Outcome]:
    logits = torch.stack([check.logits[position] for check in checks])
    return choose(logits, [check.sequence for check in checks], sampler, [_drawn(check, position) for check in checks])


def _drawn(check: Check, position: int) -> tuple[int, torch.Tensor] | None:
    """The token and what it was drawn from, where that is known and of use."""
    if check.sequence.parameters.greedy or position >= len(check.draft.probabilities):
        return None
    return check.draft.token_ids[position], check.draft.probabilities[position]


def _take(check: Check, position: int, outcome: Outcome, take: Take) -> bool:
    """Whether the next token can be checked too."""
    sequence = check.sequence
    if sequence.parameters.generation_logits:
        sequence.generation_logits.append(check.logits[position].float().cpu().clone())
    right = position < len(check.draft) and outcome.token_id == check.draft.token_ids[position]
    if right:
        sequence.acceptance.accepted += 1
        check.total.accepted += 1
    result = take(sequence, outcome)
    if result is not None:
        check.results.append(result)
        if isinstance(result[1], LmiError) or result[1].finish_reason is not None:
            return False
    if right:
        sequence.computed += 1
    return right


def merged(results: Iterable[tuple[str, Result]]) -> list[tuple[str, Result]]:
    """The steps of one sequence as one; an error stays by itself."""
    whole: list[tuple[str, Result]] = []
    for request_id, result in results:
        before = whole[-1][1] if whole else None
        if isinstance(result, GenerationStep) and isinstance(before, GenerationStep):
            before.tokens += result.tokens
            before.finish_reason = result.finish_reason
            if result.generation_logits is not None:
                before.generation_logits = (before.generation_logits or b"") + result.generation_logits
        else:
            whole.append((request_id, result))
    return whole
