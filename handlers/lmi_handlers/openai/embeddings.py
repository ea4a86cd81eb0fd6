"""OpenAI's embeddings, with vLLM's fields: the requests, the answers and the handler."""

import sys
import time
from collections.abc import Sequence
from typing import ClassVar, Literal, Self, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, model_validator

from lmi_core.embedding_backend import require_embeddings
from lmi_core.embedding_call import EmbeddingCall, EmbeddingWriter
from lmi_core.errors import InvalidPayload
from lmi_core.generation.embedding_request import EmbeddingRequest, Side, ValidEmbedding
from lmi_core.generation.parameters import CacheSalt
from lmi_core.handler import Call, Route
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_core.served_model import ServedModel
from lmi_handlers.answers.openai import EMBEDDINGS, POOLINGS
from lmi_handlers.base.openai_handler import OpenAiHandler, check_model
from lmi_handlers.chat.generation import chat_prompt
from lmi_handlers.chat.images import image_parts
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.chat.schema import JsonObject
from lmi_handlers.completions.request import Prompts
from lmi_handlers.fields.openai_tolerance import take_fields
from lmi_handlers.fields.passed import NamedRequest
from lmi_handlers.fields.vectors import json_base64, json_numbers

Encoding = Literal["float", "base64", "bytes", "bytes_only"]
POOLING = "/pooling"
NAMES = {"truncate": "truncate_prompt_tokens"}


class InputFields(BaseModel):
    """vLLM's fields about inputs from which nothing is generated."""

    padding: Literal["do_not_pad"] | None = Field(None, description="Inputs are never padded.")
    cache_salt: CacheSalt | None = Field(None, description="Share cached results only with requests of this salt.")


class VectorFields(InputFields):
    """The fields about the form of vectors, for texts and chats."""

    encoding_format: Encoding | None = Field(
        None,
        description="The encoding of the vectors. base64: 4 bytes per number; bytes: only these bytes, with the rest "
        "of the answer in the header `metadata`; bytes_only: without that header. Default: float.",
    )
    dimensions: int | None = Field(
        None, ge=1, description="The size of each vector, for models that have several sizes. Default: the full size."
    )
    use_activation: bool | None = Field(
        None, description="Whether each vector is normalized to length 1. Default: as configured in the model's files."
    )
    normalize: bool | None = Field(None, description="The older name of `use_activation`.")
    embed_dtype: Literal["float32"] | None = Field(None, description="The type of the numbers in base64 and bytes.")
    endianness: Literal["native", "little", "big"] | None = Field(
        None, description="The byte order of the numbers. Default: native, which is little."
    )

    @model_validator(mode="after")
    def _one_name(self) -> Self:
        if None not in (self.use_activation, self.normalize) and self.use_activation != self.normalize:
            raise ValueError("`use_activation` and `normalize` are the same; give one of them")
        return self

    def request_for(
        self, text: str | list[int], name: str, special: bool, truncate: int | None, side: Side | None
    ) -> EmbeddingRequest:
        """Return the request for a text's vector in this form."""
        normalize = self.normalize if self.use_activation is None else self.use_activation
        salt = self.cache_salt
        return EmbeddingRequest(text, name, special, self.dimensions, normalize, truncate, side, NAMES, cache_salt=salt)


class TextFields(NamedRequest):
    """vLLM's fields of requests about texts from which nothing is generated."""

    model: str | None = Field(None, description="A model of `GET /v1/models`; may be omitted if only one is served.")
    user: str | None = Field(None, description="The end user, written to the server's log.")
    truncate_prompt_tokens: int | None = Field(
        None, ge=-1, description="Truncate each text or pair to this many tokens; -1 means the model's maximum."
    )
    truncation_side: Side | None = Field(None, description="The side to truncate. Default: the tokenizer's.")


class EmbeddingsRequest(VectorFields, TextFields, TolerantPayload):
    """A request for the vectors of texts, given as text or token ids."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"input": ["What is Deep Learning?", "It is a really cool field."]}]}
    )

    input: Prompts = Field(description="A text, or token ids; or a list of such inputs, each of which gets a vector.")
    add_special_tokens: bool | None = Field(None, description="Add the model's special tokens. Default: true.")

    def requests(self) -> tuple[EmbeddingRequest, ...]:
        """Return a request for each input."""
        one = len(self.input) == 1
        special = self.add_special_tokens is not False
        cut = (self.truncate_prompt_tokens, self.truncation_side)
        return tuple(
            self.request_for(text, "input" if one else f"input.{index}", special, *cut)
            for index, text in enumerate(self.input)
        )


class EmbeddingsChat(VectorFields, ChatRequest):
    """A request for the vector of a chat; only the fields of its prompt have an effect."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"messages": [{"role": "user", "content": "Hi"}]}]})

    def request(self, prompt: str) -> EmbeddingRequest:
        """Return the request for the vector of the chat's prompt."""
        cut = (self.truncate_prompt_tokens, self.truncation_side)
        return self.request_for(prompt, "messages", bool(self.add_special_tokens), *cut)


class TaskField(BaseModel):
    """vLLM's field of requests to `/pooling`."""

    task: Literal["embed"] | None = Field(None, description="The result for each text: only vectors of whole texts.")


class PoolingRequest(TaskField, EmbeddingsRequest):
    """A request for the vectors of texts, given as text or token ids."""


class PoolingChat(TaskField, EmbeddingsChat):
    """A request for the vector of a chat; only the fields of its prompt have an effect."""


class OpenAiEmbeddingWriter(EmbeddingWriter):
    """OpenAI's list of embeddings, with the members that vLLM adds."""

    member: bytes = b'{"object":"embedding","index":%d,"embedding":%b}'

    def __init__(self, response_id: str, model: str, encoding: str, endianness: str) -> None:
        self._head = {"id": response_id, "object": "list", "created": int(time.time()), "model": model}
        self._encoding = encoding
        self._endianness = endianness

    def vector(self, data: bytes) -> bytes:
        return json_base64(self._reorder(data)) if self._encoding == "base64" else json_numbers(data)

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        members = [self.member % (index, vector) for index, vector in enumerate(vectors)]
        head = orjson.dumps(self._head)[:-1]
        return b'%b,"data":[%b],"usage":%b}' % (head, b",".join(members), orjson.dumps(usage(requests)))

    def _reorder(self, data: bytes) -> bytes:
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
        return self._reorder(data)

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        if self._encoding == "bytes":
            items, end = [], 0
            for index, vector in enumerate(vectors):
                items.append(self._item(index, end, len(vector)))
                end += len(vector)
            metadata = {**self._head, "data": items, "usage": usage(requests)}
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


class PoolingWriter(OpenAiEmbeddingWriter):
    """The form of vLLM's `/pooling`."""

    member: bytes = b'{"object":"pooling","index":%d,"data":%b}'


def usage(requests: Sequence[ValidEmbedding]) -> dict[str, int]:
    """Return the number of tokens of all inputs, by OpenAI's names."""
    tokens = sum(len(request.prompt_ids) for request in requests)
    return {"prompt_tokens": tokens, "total_tokens": tokens}


P = TypeVar("P", EmbeddingsRequest, EmbeddingsChat)


class OpenAiEmbeddingsHandler(OpenAiHandler):
    name: ClassVar[str] = "openai_embeddings"
    summary: ClassVar[str] = "OpenAI's embeddings"
    reads_embeddings: ClassVar[bool] = True
    routes: ClassVar[tuple[Route, ...]] = (
        Route(
            "/v1/embeddings",
            summary="Make vectors of texts",
            payloads=(EmbeddingsRequest, EmbeddingsChat),
            answers=EMBEDDINGS,
        ),
        Route(POOLING, summary="Make vectors of texts", payloads=(PoolingRequest, PoolingChat), answers=POOLINGS),
    )

    def parse(self, call: Call, model: ServedModel) -> EmbeddingCall:
        require_embeddings(model.backend, model.name)
        given = call.json_object()
        if (given.get("input") is None) == (given.get("messages") is None):
            raise InvalidPayload("one of `input` and `messages` is required")
        if given.get("input") is None:
            chat, ignored = _read(call, model, PoolingChat if call.path == POOLING else EmbeddingsChat)
            return _call(chat, (chat.request(_prompt(chat, model)),), ignored, call, model)
        texts, ignored = _read(call, model, PoolingRequest if call.path == POOLING else EmbeddingsRequest)
        return _call(texts, texts.requests(), ignored, call, model)


def _read(call: Call, model: ServedModel, payload_type: type[P]) -> tuple[P, tuple[str, ...]]:
    """Return the payload and the names of the ignored fields. Raise InvalidPayload or ModelNotFound."""
    payload, ignored = take_fields(call.json_object(), payload_type, model.options.strict_parameters)
    check_model(payload.model, call, model)
    return payload, ignored


def _prompt(chat: EmbeddingsChat, model: ServedModel) -> str:
    """Return the text of a chat, without the start of an answer unless the client asks for it, as in vLLM."""
    for place, _ in image_parts(chat):
        raise InvalidPayload(f"`{place}` is an image, but only texts have embeddings")
    begins = bool(chat.add_generation_prompt)
    return chat_prompt(chat.model_copy(update={"add_generation_prompt": begins}), model)


def _call(
    payload: EmbeddingsRequest | EmbeddingsChat,
    requests: tuple[EmbeddingRequest, ...],
    ignored: tuple[str, ...],
    call: Call,
    model: ServedModel,
) -> EmbeddingCall:
    call = payload.identify(call)
    encoding = payload.encoding_format or "float"
    prefix, writer_type = ("pooling", PoolingWriter) if call.path == POOLING else ("embd", OpenAiEmbeddingWriter)
    if encoding.startswith("bytes"):
        writer_type = BytesEmbeddingWriter
    writer = writer_type(
        f"{prefix}-{call.request_id}", model.name_asked(payload.model), encoding, payload.endianness or "native"
    )
    return EmbeddingCall(requests, writer, ignored, request_id=call.request_id)
