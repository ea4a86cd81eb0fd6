"""Cohere's embeddings, with vLLM's fields: the requests, the answers and the handler."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import orjson
from pydantic import ConfigDict, Field, JsonValue, model_validator

from lmi_core.calls.answer import json_answer
from lmi_core.embedding_backend import EmbeddingModel, require_embeddings
from lmi_core.embedding_call import EmbeddingCall, EmbeddingWriter
from lmi_core.errors import InvalidPayload, LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.embedding_request import EmbeddingRequest, Side, ValidEmbedding
from lmi_core.handler import Answer, AnswerForm, Call, Route
from lmi_core.payloads.payload import quote
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_core.served_model import ServedModel
from lmi_core.serving.embedding_validation import AS_MANY_AS_FIT
from lmi_handlers.base.openai_handler import OpenAiHandler, check_model
from lmi_handlers.base.statuses import USUAL
from lmi_handlers.cohere.answers import BY_TYPE, ERRORS, FLOATS
from lmi_handlers.fields.openai_tolerance import Refusal, Tolerance, take_fields
from lmi_handlers.fields.parameter_fields import RequestPart
from lmi_handlers.fields.vectors import json_base64, json_bits, json_numbers

FIRST_VERSION = "/v1/embed"
EXAMPLE: dict[str, JsonValue] = {"texts": ["What is Deep Learning?", "It is a really cool field."]}
TOLERANCE = Tolerance(frozenset({"priority"}), {"images": Refusal("only texts have embeddings", ([],))})
NAMES = {"dimensions": "output_dimension"}
SIDES: Mapping[str, Side] = {"START": "left", "END": "right"}
# Cohere's clients send one of these to every model; some models have prompts of other names for the same purpose.
INPUT_TYPES = {
    "search_document": "document",
    "search_query": "query",
    "classification": "classification",
    "clustering": "clustering",
}
ENCODERS: Mapping[str, Callable[[bytes], bytes]] = {
    "float": json_numbers,
    "base64": json_base64,
    "binary": partial(json_bits, signed=True),
    "ubinary": partial(json_bits, signed=False),
}
BIT_TYPES = frozenset({"binary", "ubinary"})


class TextContent(RequestPart):
    """A part of an input."""

    type: Literal["text"] = Field(description="Only texts have embeddings.")
    text: str


class MixedInput(RequestPart):
    """An input of several parts, which are joined by line breaks."""

    content: Annotated[list[TextContent], Field(min_length=1)]


class EmbedRequest(TolerantPayload):
    """A request for the vectors of texts."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    model: str | None = Field(None, description="A model of `GET /v1/models`; may be omitted if only one is served.")
    texts: Annotated[list[str], Field(min_length=1)] | None = Field(None, description="The texts.")
    inputs: Annotated[list[MixedInput], Field(min_length=1)] | None = Field(
        None, description="Instead of `texts`: inputs with `content`, a list of texts."
    )
    input_type: str | None = Field(
        None, description="The prompt to put before each text: a name from the model's files, or Cohere's name for it."
    )
    embedding_types: list[Literal["float", "base64", "binary", "ubinary"]] | None = Field(
        None,
        description="The types of the vectors. binary, ubinary: one bit per number, in signed or unsigned bytes. "
        "Default: float.",
    )
    output_dimension: int | None = Field(
        None, ge=1, description="The size of each vector, for models that have several sizes. Default: the full size."
    )
    truncate: Literal["NONE", "START", "END"] | None = Field(
        None, description="The side to truncate texts that are too long; with NONE, they are an error. Default: END."
    )
    max_tokens: int | None = Field(None, ge=1, description="The maximum number of tokens of a text.")

    @model_validator(mode="after")
    def _one_kind_of_input(self) -> Self:
        if (self.texts is None) == (self.inputs is None):
            raise ValueError("one of `texts` and `inputs` is required")
        return self

    def requests(self, model: EmbeddingModel, prompt: str) -> tuple[EmbeddingRequest, ...]:
        """Return a request for each input, with the prompt before its text."""
        name = "inputs" if self.texts is None else "texts"
        texts = self.texts or ["\n".join(part.text for part in each.content) for each in self.inputs or ()]
        fails = self.truncate == "NONE"
        most = AS_MANY_AS_FIT if self.max_tokens is None else min(self.max_tokens, model.max_length)
        return tuple(
            EmbeddingRequest(
                prompt + text,
                f"{name}.{index}",
                dimensions=self.output_dimension,
                truncate=None if fails else most,
                truncation_side=SIDES.get(self.truncate or "END"),
                names=NAMES,
                max_tokens=self.max_tokens if fails else None,
            )
            for index, text in enumerate(texts)
        )


class CohereWriter(EmbeddingWriter):
    """Cohere's vectors by type, or without types as in the first version of its API."""

    def __init__(self, head: Mapping[str, Any], version: str, types: Sequence[str] | None) -> None:
        self._head = dict(head)
        self._version = version
        self._types = tuple(dict.fromkeys(types or ["float"]))
        self._by_type = bool(types) or version != "1"

    def vector(self, data: bytes) -> bytes:
        return b"\n".join(ENCODERS[name](data) for name in self._types)

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        columns = zip(*(vector.split(b"\n") for vector in vectors), strict=True)
        lists = [orjson.Fragment(b"[%b]" % b",".join(column)) for column in columns]
        tokens = sum(len(request.prompt_ids) for request in requests)
        content = {
            **self._head,
            "embeddings": dict(zip(self._types, lists, strict=True)) if self._by_type else lists[0],
            "meta": {
                "api_version": {"version": self._version},
                "billed_units": {"input_tokens": tokens, "image_tokens": 0},
            },
            "response_type": "embeddings_by_type" if self._by_type else "embeddings_floats",
        }
        return orjson.dumps(content)


def _embed(path: str, *answers: AnswerForm) -> Route:
    return Route(path, summary="Make vectors of texts", payloads=(EmbedRequest,), answers=answers)


class CohereEmbedHandler(OpenAiHandler):
    name: ClassVar[str] = "cohere_embed"
    summary: ClassVar[str] = "Cohere's embeddings"
    reads_embeddings: ClassVar[bool] = True
    errors: ClassVar[tuple[AnswerForm, ...]] = ERRORS
    routes: ClassVar[tuple[Route, ...]] = (_embed("/v2/embed", BY_TYPE), _embed(FIRST_VERSION, BY_TYPE, FLOATS))

    def parse(self, call: Call, model: ServedModel) -> EmbeddingCall:
        found = require_embeddings(model.backend, model.name)
        strict = model.options.strict_parameters
        payload, ignored = take_fields(call.json_object(), EmbedRequest, strict, TOLERANCE)
        check_model(payload.model, call, model)
        _check_bits(payload, found)
        prompt = _prompt(payload.input_type, found, strict)
        head: dict[str, Any] = {"id": f"embd-{call.request_id}"}
        if payload.texts is not None:
            head["texts"] = payload.texts
        version = "1" if call.path == FIRST_VERSION else "2"
        writer = CohereWriter(head, version, payload.embedding_types)
        unused = ("input_type",) if prompt is None else ()
        return EmbeddingCall(payload.requests(found, prompt or ""), writer, ignored + unused)

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        return json_answer({"message": error.message}, USUAL.of(error, model))


def _prompt(input_type: str | None, model: EmbeddingModel, strict: bool) -> str | None:
    """Return the prompt of an input type; None if the model has none for a type of Cohere's.

    Raise InvalidPayload for any other type without a prompt and, if strict, for these too.
    """
    if input_type is None:
        return ""
    for name in (input_type, INPUT_TYPES.get(input_type, input_type)):
        if name in model.prompts:
            return model.prompts[name]
    if input_type in INPUT_TYPES and not strict:
        return None
    known = ", ".join(model.prompts) or "omitted: the model's files contain no prompts"
    raise InvalidPayload(f"`input_type` must be {'one of ' * bool(model.prompts)}{known}. Given: {quote(input_type)}")


def _check_bits(payload: EmbedRequest, model: EmbeddingModel) -> None:
    """Raise InvalidPayload for types of eight numbers in a byte if the vectors do not fill their bytes."""
    size = payload.output_dimension or model.size
    if size % 8 and BIT_TYPES.intersection(payload.embedding_types or ()):
        raise InvalidPayload(
            f"`embedding_types` must be float or base64: other types need vectors whose size is a multiple of 8, and "
            f"these have {size} numbers"
        )
