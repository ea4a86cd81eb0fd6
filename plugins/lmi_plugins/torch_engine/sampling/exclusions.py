"""Logits processors that exclude tokens."""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items

import torch

from lmi_core.generation.reasoning_budget import ReasoningBudget, ReasoningCountdown
from lmi_plugins.torch_engine.sampling.warpers import EXCLUDED
from lmi_plugins.torch_engine.sequences.processor_state import Ngrams
from lmi_plugins.torch_engine.sequences.sequence import Sequence


def exclude(
    banned_ids: Callable[[Sequence], Iterable[int]], scores: torch.Tensor, sequences: Items[Sequence]
) -> torch.Tensor:
    """Exclude the banned ids of each sequence."""
    pairs = [(row, token_id) for row, sequence in enumerate(sequences) for token_id in banned_ids(sequence)]
    pairs = [pair for pair in pairs if pair[1] < scores.shape[1]]  # larger ids stand for a soft prompt
    if not pairs:
        return scores
    rows, ids = torch.tensor(pairs, device=scores.device).unbind(1)
    return scores.index_put((rows, ids), scores.new_tensor(EXCLUDED))


def repeated_ngrams(sequence: Sequence) -> Iterable[int]:
    """Return tokens that would complete an n-gram for the second time, including in the prompt, as in transformers."""
    state = sequence.state
    if state.ngrams is None:
        state.ngrams = Ngrams(sequence.parameters.no_repeat_ngram_size)
    return state.ngrams.completions(sequence.token_ids)


def bad_sequences(sequence: Sequence) -> Iterable[int]:
    """Yield tokens that would complete a bad sequence of token ids, which may begin in the prompt.

    The end-of-sequence token alone is never bad, as in transformers.
    """
    ids = sequence.token_ids
    for *before, last in sequence.parameters.bad_sequences:
        if before:
            if ids[-len(before) :] == before:
                yield last
        elif last not in sequence.eos_token_ids:
            yield last


def early_ends(sequence: Sequence) -> Iterable[int]:
    """Yield end-of-sequence and stop tokens while fewer than `min_length` tokens are generated."""
    parameters = sequence.parameters
    if len(sequence.token_ids) - sequence.prompt_length >= parameters.min_length:
        return
    if not parameters.ignore_end:
        yield from sequence.eos_token_ids
    for stop in parameters.stop_token_sequences:
        if len(stop) == 1:
            yield stop[0]


def exclude_bad_texts(scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
    """Exclude tokens that would complete a bad text, of which there are many if the text is short."""
    found = [(row, ids) for row, sequence in enumerate(sequences) for ids in _completing(sequence)]
    if not found:
        return scores
    scores = scores.clone()
    for row, ids in found:
        scores[row].index_fill_(0, ids.to(scores.device), EXCLUDED)
    return scores


def _completing(sequence: Sequence) -> Iterable[torch.Tensor]:
    """Yield the ids of tokens that would complete a bad text, in non-empty arrays."""
    ban = sequence.state.text_ban
    assert ban is not None, "the engine must create it with the sequence"
    for ids in (ban.always, ban.completing(sequence.token_ids, sequence.prompt_length)):
        if ids is not None and len(ids):
            yield torch.from_numpy(ids)


def keep_allowed_tokens(scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
    """Keep only the tokens that the request allows; the end-of-sequence token is no exception."""
    left = torch.full_like(scores, EXCLUDED)
    for row, sequence in enumerate(sequences):
        state = sequence.state
        if state.allowed_ids is None:
            allowed = sequence.parameters.allowed_ids
            state.allowed_ids = torch.tensor(allowed, dtype=torch.long, device=scores.device)
        left[row, state.allowed_ids] = scores[row, state.allowed_ids]
    return left


def end_reasoning(scores: torch.Tensor, sequences: Items[Sequence]) -> torch.Tensor:
    """Keep only the next token of the end marker when the reasoning reaches its limit.

    It runs after the other processors, because none of them may keep the reasoning from ending.
    """
    forced = {row: token_id for row, each in enumerate(sequences) if (token_id := _next_id(each)) is not None}
    if not forced:
        return scores
    scores = scores.clone()
    for row, token_id in forced.items():
        scores[row] = EXCLUDED
        scores[row, token_id] = 0.0
    return scores


def _next_id(sequence: Sequence) -> int | None:
    limit, state = sequence.parameters.reasoning_limit, sequence.state
    assert limit is not None, "only requests with a limit have this processor"
    if state.reasoning is None:
        budget = ReasoningBudget(tokens=limit.tokens, starts=limit.starts, ends=limit.ends, inside=limit.inside)
        state.reasoning = ReasoningCountdown(budget)
    return state.reasoning.forced_token(sequence.token_ids[sequence.prompt_length :])
