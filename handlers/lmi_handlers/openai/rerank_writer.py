"""The answers to requests for scores."""

import time
from collections.abc import Sequence
from typing import Any

import orjson

from lmi_core.embedding_call import EmbeddingWriter
from lmi_core.generation.embedding_request import ValidEmbedding
from lmi_handlers.fields.vectors import json_number, sigmoid


def _ranked(scores: Sequence[bytes]) -> list[int]:
    """Return the indices of scores, the highest first."""
    return sorted(range(len(scores)), key=lambda index: float(scores[index]), reverse=True)


def _usage(requests: Sequence[ValidEmbedding]) -> dict[str, int]:
    tokens = sum(len(request.prompt_ids) for request in requests)
    return {"prompt_tokens": tokens, "total_tokens": tokens}


class ScoreWriter(EmbeddingWriter):
    """vLLM's list of scores."""

    def __init__(self, response_id: str, model: str) -> None:
        self._id = response_id
        self._model = model

    def vector(self, data: bytes) -> bytes:
        return json_number(data)

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        content = {
            "id": self._id,
            "object": "list",
            "created": int(time.time()),
            "model": self._model,
            "data": [
                {"index": index, "object": "score", "score": orjson.Fragment(score)}
                for index, score in enumerate(vectors)
            ],
            "usage": _usage(requests),
        }
        return orjson.dumps(content)


class RerankWriter(ScoreWriter):
    """Jina's and Cohere's results, in the order of their scores, with vLLM's usage."""

    def __init__(self, response_id: str, model: str, documents: Sequence[str] | None, top_n: int | None) -> None:
        """`documents` are those of the request, if results contain them."""
        super().__init__(response_id, model)
        self._documents = documents
        self._top_n = top_n or None

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        results = [self._result(index, vectors[index]) for index in _ranked(vectors)[: self._top_n]]
        content = {"id": self._id, "model": self._model, "usage": _usage(requests), "results": results}
        return orjson.dumps(content)

    def _result(self, index: int, score: bytes) -> dict[str, Any]:
        document = {} if self._documents is None else {"document": {"text": self._documents[index]}}
        return {"index": index, **document, "relevance_score": orjson.Fragment(score)}


class TeiRerankWriter(EmbeddingWriter):
    """The results of Text Embeddings Inference, in the order of their scores."""

    def __init__(self, texts: Sequence[str] | None, *, raw: bool) -> None:
        """`texts` are those of the request, if results contain them."""
        self._texts = texts
        self._raw = raw

    def vector(self, data: bytes) -> bytes:
        return json_number(data if self._raw else sigmoid(data))

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        results = [
            {
                "index": index,
                **({} if self._texts is None else {"text": self._texts[index]}),
                "score": orjson.Fragment(vectors[index]),
            }
            for index in _ranked(vectors)
        ]
        return orjson.dumps(results)
