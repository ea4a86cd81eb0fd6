"""The model's own logits, for requests that ask for them."""

from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.sequence import Chunk, Sequence
from lmi_plugins.torch_engine.worker.tensors import to_bytes


def collect_logits(chunks: Items[Chunk], logits: torch.Tensor) -> None:
    """logits: [positions, vocabulary], of the positions that the chunks want, one after the other."""
    offset = 0
    for chunk in chunks:
        count = chunk.end - chunk.logits_start
        if chunk.wants_prompt_logits:
            of_prompt = logits[offset : offset + chunk.sequence.prompt_length - chunk.start][:count]
            chunk.sequence.prompt_logits.append(of_prompt.float().cpu())
        if chunk.samples and chunk.draft is None and chunk.sequence.parameters.generation_logits:
            # A copy, as a view would keep those of the whole batch.
            chunk.sequence.generation_logits.append(logits[offset + count - 1].float().cpu().clone())
        offset += count


def take_prompt_logits(sequence: Sequence) -> bytes | None:
    """[prompt tokens, vocabulary], once; None where they were not asked for."""
    parts, sequence.prompt_logits = sequence.prompt_logits, []
    return to_bytes(torch.cat(parts)) if parts else None


def take_generation_logits(sequence: Sequence, count: int) -> bytes | None:
    """[count, vocabulary], of the earliest tokens that were not taken yet; None where they were not asked for."""
    if not sequence.parameters.generation_logits:
        return None
    taken, sequence.generation_logits = sequence.generation_logits[:count], sequence.generation_logits[count:]
    return joined_logits(taken) or b""


def joined_logits(rows: Items[torch.Tensor]) -> bytes | None:
    """None where there are none."""
    return to_bytes(torch.stack(list(rows))) if rows else None
