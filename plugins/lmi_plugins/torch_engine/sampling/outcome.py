"""What a step's logits say about each of its chunks."""

from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import torch

from lmi_plugins.torch_engine.sampling.likeliest import read_likeliest
from lmi_plugins.torch_engine.sampling.sampler import DrawnToken, Sampler, log_probs, ranks
from lmi_plugins.torch_engine.sequence import Chunk, Likeliest, Sequence


@dataclass(slots=True)
class Outcome:
    """Of one chunk."""

    token_id: int | None = None  # the token after it; None within a prompt
    log_prob: float = 0.0
    prompt_log_probs: list[float] = field(default_factory=list)  # from the chunk's second token on, if asked for
    prompt_ranks: list[int] = field(default_factory=list)  # of the same tokens
    top_tokens: Likeliest | None = None  # in the token's place, if asked for
    prompt_top_tokens: list[Likeliest] = field(default_factory=list)  # where the prompt's log probs are, if asked for


def read_outcomes(chunks: Items[Chunk], logits: torch.Tensor, sampler: Sampler) -> list[Outcome]:
    """logits: [positions, vocabulary], of the positions that the chunks want, one after the other."""
    outcomes = [Outcome() for _ in chunks]
    _read_samples(chunks, logits, sampler, outcomes)
    offset = 0
    for chunk, outcome in zip(chunks, outcomes, strict=True):
        count = chunk.end - chunk.logits_start
        if chunk.wants_prompt_log_probs:
            _read_prompt(chunk, logits[offset : offset + count], outcome)
        offset += count
    return outcomes


def _read_samples(chunks: Items[Chunk], logits: torch.Tensor, sampler: Sampler, outcomes: list[Outcome]) -> None:
    rows, offset = {}, 0  # the chunk's place: that of its last logits
    for place, chunk in enumerate(chunks):
        offset += chunk.end - chunk.logits_start
        if chunk.samples and chunk.sequence.search is None and chunk.draft is None:
            rows[place] = offset - 1
    if not rows:
        return
    if len(rows) < logits.shape[0]:
        logits = logits[torch.tensor(list(rows.values()), device=logits.device)]
    chosen = choose(logits, [chunks[place].sequence for place in rows], sampler)
    for place, outcome in zip(rows, chosen, strict=True):
        outcomes[place] = outcome


def choose(
    logits: torch.Tensor,
    sequences: Items[Sequence],
    sampler: Sampler,
    drafts: Items[DrawnToken | None] | None = None,
) -> list[Outcome]:
    """logits: [sequences, vocabulary], of the place of each sequence's next token."""
    ids, likelihoods = sampler.sample(logits, sequences, drafts)
    outcomes = [Outcome(*chosen) for chosen in zip(ids.tolist(), likelihoods.tolist(), strict=True)]
    _read_top_tokens(sequences, logits, outcomes)
    _read_named_tokens(sequences, logits, outcomes)
    return outcomes


def _read_top_tokens(sequences: Items[Sequence], logits: torch.Tensor, outcomes: Items[Outcome]) -> None:
    """logits: [sequences, vocabulary]."""
    rows = [row for row, sequence in enumerate(sequences) if sequence.parameters.num_top_tokens]
    if rows:
        counts = [sequences[row].parameters.num_top_tokens for row in rows]
        found = read_likeliest(logits[torch.tensor(rows, device=logits.device)], counts)
        for row, likeliest in zip(rows, found, strict=True):
            outcomes[row].top_tokens = likeliest


def _read_named_tokens(sequences: Items[Sequence], logits: torch.Tensor, outcomes: Items[Outcome]) -> None:
    """logits: [sequences, vocabulary]. The chosen token, then those that the request names, in its order."""
    for row, (sequence, outcome) in enumerate(zip(sequences, outcomes, strict=True)):
        if sequence.parameters.top_ids and outcome.token_id is not None:
            ids = list(dict.fromkeys([outcome.token_id, *sequence.parameters.top_ids]))
            values = logits[row].float().log_softmax(-1)[ids].tolist()
            outcome.top_tokens = list(zip(ids, values, strict=True))


def _read_prompt(chunk: Chunk, logits: torch.Tensor, outcome: Outcome) -> None:
    """logits: [tokens of the chunk, vocabulary]; each tells about the token after its own."""
    end = min(chunk.end + 1, chunk.sequence.prompt_length)
    ids = torch.tensor(chunk.sequence.token_ids[chunk.start + 1 : end], dtype=torch.long, device=logits.device)
    logits = logits[: len(ids)].float()
    outcome.prompt_log_probs = log_probs(logits, ids).tolist()
    outcome.prompt_ranks = ranks(logits, ids).tolist()
    count = chunk.sequence.parameters.num_prompt_top_tokens
    if count:
        outcome.prompt_top_tokens = read_likeliest(logits, [count] * len(ids))
