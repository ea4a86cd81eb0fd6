"""What an engine can take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The sizes of a loaded model and of its cache."""

    max_length: int  # of a prompt and what is generated from it, in tokens
    max_batch_size: int  # sequences that run at once
    vocabulary: int  # token ids
    cache_bytes: int  # what keys and values take at most
    eos_token_ids: frozenset[int]  # the model's own
