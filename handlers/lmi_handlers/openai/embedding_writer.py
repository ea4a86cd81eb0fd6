"""The answer of OpenAI's embeddings."""

import sys
import time
from base64 import b64encode
from collections.abc import Sequence

import orjson

from lmi_core.embedding_call import EmbeddingWriter
from lmi_core.generation.embedding_request import ValidEmbedding
from lmi_handlers.chat.schema import JsonObject
from lmi_handlers.fields.vectors import json_numbers


class OpenAiEmbeddingWriter(EmbeddingWriter):
    """OpenAI's list of embeddings, with the members that vLLM adds."""

    def __init__(self, response_id: str, model: str, encoding: str, endianness: str) -> None:
        self._head = {"id": response_id, "object": "list", "created": int(time.time()), "model": model}
        self._encoding = encoding
        self._endianness = endianness

    def vector(self, data: bytes) -> bytes:
        return b'"' + b64encode(self._ordered(data)) + b'"' if self._encoding == "base64" else json_numbers(data)

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        members = [
            b'{"object":"embedding","index":%d,"embedding":%b}' % (index, vector)
            for index, vector in enumerate(vectors)
        ]
        head = orjson.dumps(self._head)[:-1]
        return b'%b,"data":[%b],"usage":%b}' % (head, b",".join(members), orjson.dumps(_usage(requests)))

    def _ordered(self, data: bytes) -> bytes:
        """Return little-endian numbers of 4 bytes in the client's order."""
        order = sys.byteorder if self._endianness == "native" else self._endianness
        if order == "little":
            return data
        swapped = bytearray(len(data))
        for place in range(4):
            swapped[place::4] = data[3 - place :: 4]
        return bytes(swapped)


class BytesEmbeddingWriter(OpenAiEmbeddingWriter):
    """vLLM's form: the numbers of all vectors alone, and the rest of the answer in a header unless it is unwanted."""

    content_type = "application/octet-stream"

    def vector(self, data: bytes) -> bytes:
        return self._ordered(data)

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        if self._encoding == "bytes":
            items, end = [], 0
            for index, vector in enumerate(vectors):
                items.append(self._item(index, end, len(vector)))
                end += len(vector)
            metadata = {**self._head, "data": items, "usage": _usage(requests)}
            del metadata["object"]
            self.headers = {"metadata": orjson.dumps(metadata).decode()}
        return b"".join(vectors)

    def _item(self, index: int, start: int, size: int) -> JsonObject:
        return {
            "index": index,
            "embed_dtype": "float32",
            "endianness": self._endianness,
            "start": start,
            "end": start + size,
            "shape": [size // 4],
        }


def _usage(requests: Sequence[ValidEmbedding]) -> dict[str, int]:
    tokens = sum(len(request.prompt_ids) for request in requests)
    return {"prompt_tokens": tokens, "total_tokens": tokens}
