"""Embedding requests to the torch engine. Imports no torch, so that other processes need not have it."""

from typing import Literal

import msgspec

Task = Literal["generate", "embed", "score"]
Pooling = Literal["cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken"]


class EmbeddingOptions(msgspec.Struct, array_like=True, frozen=True):
    """The options of a model's vectors; None means that the model's own files decide."""

    task: Task | None = None  # a generating model makes vectors too, if it can
    pooling: Pooling | None = None
    normalize: bool | None = None
    dimensions: list[int] | None = None  # the smaller sizes of a matryoshka model
    any_dimensions: bool = False  # every size is possible


class EmbeddingInput(msgspec.Struct, array_like=True, frozen=True):
    """One text to embed, or pair of texts to score."""

    prompt_ids: list[int]
    dimensions: int | None = None  # length of the vector; None: full length
    normalize: bool | None = None  # None: the model's default
    token_types: list[int] | None = None  # None: 0 for all


class EmbeddingJob(msgspec.Struct, array_like=True, frozen=True):
    """The texts of one request. The id is the caller's, and unique among unfinished requests."""

    request_id: str
    inputs: list[EmbeddingInput]
