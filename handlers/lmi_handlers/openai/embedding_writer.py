"""The answer of OpenAI's embeddings."""

import time
from base64 import b64encode
from collections.abc import Sequence

import orjson

from lmi_core.embedding_call import EmbeddingWriter
from lmi_core.generation.embedding_request import ValidEmbedding
from lmi_handlers.fields.vectors import json_numbers


class OpenAiEmbeddingWriter(EmbeddingWriter):
    """OpenAI's list of embeddings, with the members that vLLM adds."""

    def __init__(self, response_id: str, model: str, in_base64: bool) -> None:
        self._head = {"id": response_id, "object": "list", "created": int(time.time()), "model": model}
        self._in_base64 = in_base64

    def vector(self, data: bytes) -> bytes:
        return b'"' + b64encode(data) + b'"' if self._in_base64 else json_numbers(data)

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        tokens = sum(len(request.prompt_ids) for request in requests)
        usage = orjson.dumps({"prompt_tokens": tokens, "total_tokens": tokens})
        members = [
            b'{"object":"embedding","index":%d,"embedding":%b}' % (index, vector)
            for index, vector in enumerate(vectors)
        ]
        return b'%b,"data":[%b],"usage":%b}' % (orjson.dumps(self._head)[:-1], b",".join(members), usage)
