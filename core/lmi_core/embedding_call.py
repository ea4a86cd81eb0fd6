"""A parsed call for embeddings, and the interface of the writer of its answer."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lmi_core.errors import LmiError
from lmi_core.formatter import AnswerWriter
from lmi_core.generation.embedding_request import EmbeddingRequest, ValidEmbedding


class EmbeddingWriter(AnswerWriter):
    """A writer of one call's vectors; one instance per call."""

    content_type: str = "application/json"

    @abstractmethod
    def vector(self, data: bytes) -> bytes:
        """Return a vector, given as little-endian float32, in the answer's form.

        Vectors are written one by one as they arrive, so that long answers do not delay other requests.
        """

    @abstractmethod
    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        """Return the answer, given the result of `vector` for each request."""

    def error(self, error: LmiError) -> bytes:
        """Return nothing: the answer is sent as a whole, or not at all."""
        return b""


@dataclass(frozen=True, slots=True)
class EmbeddingCall:
    """A parsed call for embeddings: the texts, and the writer of the answer."""

    requests: tuple[EmbeddingRequest, ...]
    writer: EmbeddingWriter
    ignored: tuple[str, ...] = ()  # names of the unknown fields that `parse` dropped
    headers: Mapping[str, str] = field(default_factory=dict)  # headers of the response
    timeout: float | None = None  # seconds allowed for the answer
    request_id: str | None = None  # replaces the call's id, if its body sets one; None leaves it unchanged
