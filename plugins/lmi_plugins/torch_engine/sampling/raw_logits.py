"""The model's own logits, for requests that ask for them."""

from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.messages.tensors import to_bytes
from lmi_plugins.torch_engine.sequences.sequence import Sequence
from lmi_plugins.torch_engine.sequences.step_batch import StepBatch


def collect_logits(batch: StepBatch, logits: torch.Tensor) -> None:
    """Keep the rows of the logits that requests ask for with their sequences. Verified drafts bring their own."""
    for chunk, rows in zip(batch.chunks, batch.logits_rows, strict=True):
        sequence = chunk.sequence
        if sequence.parameters.prompt_logits and not sequence.started:
            of_prompt = logits[rows][: sequence.prompt_length - chunk.start]
            sequence.prompt_logits.append(of_prompt.float().cpu())
        if sequence.parameters.generation_logits and chunk.draft is None and sequence in batch.next_token_rows:
            keep_generation_logits(sequence, logits[batch.next_token_rows[sequence]])


def keep_generation_logits(sequence: Sequence, logits: torch.Tensor) -> None:
    """Keep a copy of the logits, [vocabulary], that a token is chosen by: a view would keep the whole batch's."""
    sequence.generation_logits.append(logits.float().cpu().clone())


def take_prompt_logits(sequence: Sequence) -> bytes | None:
    """Return the logits of the prompt once, [prompt tokens, vocabulary]; None where they were not asked for."""
    parts, sequence.prompt_logits = sequence.prompt_logits, []
    return to_bytes(torch.cat(parts)) if parts else None


def take_generation_logits(sequence: Sequence, count: int) -> bytes | None:
    """Return those of the next `count` generated tokens, [count, vocabulary]; None where they were not asked for."""
    if not sequence.parameters.generation_logits:
        return None
    taken, sequence.generation_logits = sequence.generation_logits[:count], sequence.generation_logits[count:]
    return joined_logits(taken) or b""


def joined_logits(rows: Items[torch.Tensor]) -> bytes | None:
    """Return the bytes of all rows; None where there is no row."""
    return to_bytes(torch.stack(list(rows))) if rows else None
