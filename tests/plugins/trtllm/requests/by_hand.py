"""What must be generated, by full forward passes of transformers' own model."""

from collections.abc import Callable
from typing import Any

import torch

Change = Callable[[torch.Tensor, list[int]], torch.Tensor]  # of logits, [vocabulary], after these tokens


def unchanged(logits: torch.Tensor, ids: list[int]) -> torch.Tensor:
    return logits


@torch.inference_mode()
def all_logits(model: Any, ids: list[int]) -> torch.Tensor:
    """[tokens, vocabulary]."""
    logits: torch.Tensor = model(torch.tensor([ids])).logits[0].float()
    return logits


def greedy(model: Any, prompt_ids: list[int], count: int, change: Change = unchanged) -> list[int]:
    """The likeliest tokens, one after the other."""
    ids = list(prompt_ids)
    for _ in range(count):
        ids.append(int(change(all_logits(model, ids)[-1], ids).argmax()))
    return ids[len(prompt_ids) :]


def log_probs(model: Any, prompt_ids: list[int], generated: list[int]) -> list[float]:
    """Of each generated token."""
    rows = all_logits(model, prompt_ids + generated).log_softmax(-1)
    return [float(rows[len(prompt_ids) - 1 + place, token_id]) for place, token_id in enumerate(generated)]
