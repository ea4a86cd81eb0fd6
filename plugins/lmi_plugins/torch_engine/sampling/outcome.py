"""The outcome of a step's logits for each chunk."""

from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import torch

from lmi_plugins.torch_engine.messages.tensors import to_bytes
from lmi_plugins.torch_engine.sampling.sampler import DraftToken, Sampler, log_probs_of, ranks_of
from lmi_plugins.torch_engine.sequences.sequence import Sequence
from lmi_plugins.torch_engine.sequences.step_batch import Chunk, StepBatch
from lmi_plugins.torch_engine.sequences.top_logprobs import TopLogprobs, read_top_logprobs


@dataclass(slots=True)
class Outcome:
    """Sampling result of one chunk."""

    token_id: int | None = None  # the token after it; None within a prompt
    log_prob: float = 0.0
    rank: int | None = None  # rank of the token, if requested
    prompt_log_probs: list[float] = field(default_factory=list)  # starting with the chunk's second token, if requested
    prompt_ranks: list[int] = field(default_factory=list)  # of the same tokens
    top_logprobs: TopLogprobs | None = None  # at the token's position, if requested
    prompt_top_logprobs: list[TopLogprobs] = field(default_factory=list)  # for each of the prompt's log probs


def read_outcomes(batch: StepBatch, logits: torch.Tensor, sampler: Sampler) -> list[Outcome]:
    """Return the outcome of each chunk, except for draft tokens and beams, which are chosen elsewhere."""
    outcomes = [Outcome() for _ in batch.chunks]
    _sample(batch, logits, sampler, outcomes)
    for chunk, rows, outcome in zip(batch.chunks, batch.logits_rows, outcomes, strict=True):
        if chunk.wants_prompt_log_probs:
            _read_prompt(chunk, logits[rows], outcome)
        if chunk.sequence.parameters.prompt_logits or chunk.sequence.parameters.generation_logits:
            _keep_logits(chunk, logits[rows])
    return outcomes


def _sample(batch: StepBatch, logits: torch.Tensor, sampler: Sampler, outcomes: list[Outcome]) -> None:
    """Replace the outcomes of the chunks whose next token the sampler chooses."""
    rows = {
        index: batch.next_token_rows[chunk.sequence]
        for index, chunk in enumerate(batch.chunks)
        if chunk.draft is None and chunk.group.sampled and chunk.sequence in batch.next_token_rows
    }
    if not rows:
        return
    if len(rows) < logits.shape[0]:
        logits = logits[torch.tensor(list(rows.values()), device=logits.device)]
    chosen = choose(logits, [batch.chunks[index].sequence for index in rows], sampler)
    for index, outcome in zip(rows, chosen, strict=True):
        outcomes[index] = outcome


def choose(
    logits: torch.Tensor,
    sequences: Items[Sequence],
    sampler: Sampler,
    drafts: Items[DraftToken | None] | None = None,
) -> list[Outcome]:
    """Choose the next token of each sequence by its row of the logits, [sequences, vocabulary]."""
    ids, log_probs = sampler.sample(logits, sequences, drafts)
    outcomes = [Outcome(*chosen) for chosen in zip(ids.tolist(), log_probs.tolist(), strict=True)]
    if any(each.parameters.ranks or each.parameters.num_top_tokens or each.parameters.top_ids for each in sequences):
        _describe(sequences, logits, outcomes)
    return outcomes


def _describe(sequences: Items[Sequence], logits: torch.Tensor, outcomes: Items[Outcome]) -> None:
    """Fill in the ranks and top tokens of the sequences that ask for them; logits: [sequences, vocabulary]."""
    parameters = [sequence.parameters for sequence in sequences]
    if rows := [row for row, each in enumerate(parameters) if each.ranks]:
        ids = torch.tensor([outcomes[row].token_id for row in rows], device=logits.device)
        for row, rank in zip(rows, ranks_of(logits[rows].float(), ids).tolist(), strict=True):
            outcomes[row].rank = rank
    if rows := [row for row, each in enumerate(parameters) if each.num_top_tokens]:
        found = read_top_logprobs(logits[rows], [parameters[row].num_top_tokens for row in rows])
        for row, top_logprobs in zip(rows, found, strict=True):
            outcomes[row].top_logprobs = top_logprobs
    for row, (each, outcome) in enumerate(zip(parameters, outcomes, strict=True)):
        if each.top_ids and outcome.token_id is not None:  # the chosen token, then those named in the request
            named = list(dict.fromkeys([outcome.token_id, *each.top_ids]))
            values = logits[row].float().log_softmax(-1)[named].tolist()
            outcome.top_logprobs = list(zip(named, values, strict=True))


def _read_prompt(chunk: Chunk, logits: torch.Tensor, outcome: Outcome) -> None:
    """Fill in a prompt's details from a chunk's logits, [tokens, vocabulary]; each row is about the next token."""
    end = min(chunk.end + 1, chunk.sequence.prompt_length)
    ids = torch.tensor(chunk.sequence.token_ids[chunk.start + 1 : end], dtype=torch.long, device=logits.device)
    logits = logits[: len(ids)].float()
    outcome.prompt_log_probs = log_probs_of(logits, ids).tolist()
    outcome.prompt_ranks = ranks_of(logits, ids).tolist()
    count = chunk.sequence.parameters.num_prompt_top_tokens
    if count:
        outcome.prompt_top_logprobs = read_top_logprobs(logits, [count] * len(ids))


def _keep_logits(chunk: Chunk, logits: torch.Tensor) -> None:
    """Store the requested rows of a chunk's logits with its sequence. Verified drafts have their own."""
    sequence = chunk.sequence
    if sequence.parameters.prompt_logits and not sequence.started:
        sequence.prompt_logits.append(logits[: sequence.prompt_length - chunk.start].float().cpu())
    if sequence.parameters.generation_logits and chunk.draft is None and chunk.samples:
        keep_generation_logits(sequence, logits[-1])


def keep_generation_logits(sequence: Sequence, logits: torch.Tensor) -> None:
    """Store a copy of the logits, [vocabulary], from which a token is chosen: a view would keep the whole batch."""
    sequence.generation_logits.append(logits.float().cpu().clone())


def take_prompt_logits(sequence: Sequence) -> bytes | None:
    """Return the logits of the prompt once, [prompt tokens, vocabulary]; None if not requested."""
    parts, sequence.prompt_logits = sequence.prompt_logits, []
    return to_bytes(torch.cat(parts)) if parts else None


def take_generation_logits(sequence: Sequence, count: int) -> bytes | None:
    """Return the logits of the next `count` generated tokens, [count, vocabulary]; None if not requested."""
    if not sequence.parameters.generation_logits:
        return None
    taken, sequence.generation_logits = sequence.generation_logits[:count], sequence.generation_logits[count:]
    return logits_bytes(taken) or b""


def logits_bytes(rows: Items[torch.Tensor]) -> bytes | None:
    """Return the bytes of all rows; None without rows."""
    return to_bytes(torch.stack(list(rows))) if rows else None
