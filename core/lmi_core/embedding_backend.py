"""The interface of backends that embed texts, or score pairs of texts."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lmi_core.backend import Backend
from lmi_core.errors import ModelNotFound
from lmi_core.generation.embedding_request import ValidEmbedding

SCORES = "is a reranker, which scores pairs of texts and"
SCORE_ROUTES = "POST /rerank, POST /score and POST /invocations take its inputs"

Vector = tuple[int, bytes]  # the index of its request, and its numbers as little-endian float32


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """The properties of a backend's vectors, or of the scores that it returns instead."""

    size: int  # the number of dimensions
    max_length: int  # maximum number of tokens in an input
    dimensions: tuple[int, ...] | None = ()  # the smaller sizes that a request may choose; None means any size
    lower_case: bool = False  # convert texts to lower case before tokenizing them
    scores: bool = False  # whether a vector is the score of a pair of texts
    joins_pairs: bool = False  # join the texts of a pair into one, as causal models expect
    prompts: Mapping[str, str] = field(default_factory=dict)  # the beginnings of texts that requests may name


class EmbeddingBackend(ABC):
    """The additional interface of a backend that embeds texts."""

    embedding: EmbeddingModel | None = None  # set by the time `start` returns; None if the model makes no vectors

    @abstractmethod
    def embed(self, requests: Sequence[ValidEmbedding]) -> AsyncGenerator[Vector, None]:
        """Yield the vector of each request, in any order; closing the generator drops the remaining requests.

        Raise an LmiError if a vector cannot be computed.
        """


def require_embeddings(backend: Backend[Any], name: str) -> EmbeddingModel:
    """Return the properties of a model's vectors. Raise ModelNotFound for a model without embeddings."""
    found = _embedding(backend)
    if found is not None and found.scores:
        raise ModelNotFound(f"model `{name}` {SCORES} makes no embeddings: {SCORE_ROUTES}")
    if found is None:
        raise ModelNotFound(
            f"model `{name}` makes no embeddings on the {backend.name} backend: set option.task=text-embedding if the "
            "model supports them"
        )
    return found


def require_scores(backend: Backend[Any], name: str) -> EmbeddingModel:
    """Return the properties of a model's scores. Raise ModelNotFound for a model that scores no pairs of texts."""
    found = _embedding(backend)
    if found is None or not found.scores:
        raise ModelNotFound(
            f"model `{name}` is not a reranker: scores need a model for sequence classification with one label, on the "
            "torch or vllm backend. A model that only makes embeddings takes vLLM's POST /rerank and POST /score"
        )
    return found


def is_reranker(backend: Backend[Any]) -> bool:
    """Return whether the model scores pairs of texts, and nothing else."""
    found = _embedding(backend)
    return found is not None and found.scores


def _embedding(backend: Backend[Any]) -> EmbeddingModel | None:
    return backend.embedding if isinstance(backend, EmbeddingBackend) else None


def require_generation(backend: Backend[Any], name: str) -> None:
    """Raise ModelNotFound for a model that only embeds."""
    if not backend.generates:
        if is_reranker(backend):
            raise ModelNotFound(f"model `{name}` {SCORES} generates no text: {SCORE_ROUTES}")
        raise ModelNotFound(
            f"model `{name}` makes embeddings and generates no text: use POST /v1/embeddings, POST /embed or POST "
            "/invocations"
        )
