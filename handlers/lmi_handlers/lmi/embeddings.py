"""LMI's requests for vectors and for scores of pairs, on the same routes as generation."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from lmi_core.embedding_backend import require_generation
from lmi_core.embedding_call import EmbeddingCall
from lmi_core.errors import InvalidPayload
from lmi_core.generation.embedding_request import EmbeddingRequest
from lmi_core.payloads.tolerant_payload import take_known
from lmi_core.served_model import ServedModel
from lmi_handlers.fields.embedding_inputs import (
    EmbeddingPayload,
    TruncationFields,
    VectorsWriter,
    read_embedding_call,
)
from lmi_handlers.fields.parameter_fields import RequestPart
from lmi_handlers.fields.vectors import json_number, scores_of, sigmoid

KEYS = ("text", "text_pair", "key", "value")


def embedding_call(body: Mapping[str, Any], model: ServedModel) -> EmbeddingCall:
    """Return a parsed call for embeddings. Raise InvalidPayload, or ModelNotFound for a chat."""
    if body.get("messages") is not None:
        require_generation(model.backend, model.name)
    return read_embedding_call(body, model, EmbeddingPayload)


class TextPair(RequestPart):
    text: str
    text_pair: str


def _as_pair(given: object) -> object:
    """Return a pair in a single form, even if it is an array or has DJLServing's other names for the texts."""
    if isinstance(given, list) and len(given) == 2:
        return {"text": given[0], "text_pair": given[1]}
    if isinstance(given, dict) and {"key", "value"} <= given.keys():
        return {"text": given["key"], "text_pair": given["value"]}
    return given


class PairsPayload(TruncationFields):
    """A reranker's request; DJLServing's other forms are converted to this one."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"inputs": [{"text": "What is Deep Learning?", "text_pair": "A field."}]}]}
    )

    model: str | None = Field(None, description="The name of the model; required if several are served.")
    inputs: Annotated[list[Annotated[TextPair, BeforeValidator(_as_pair)]], Field(min_length=1)] = Field(
        description="A pair of texts, or several."
    )

    def requests(self) -> tuple[EmbeddingRequest, ...]:
        """Return a request for each pair, for the model's own score."""
        pairs = [(pair.text, pair.text_pair) for pair in self.inputs]
        return scores_of(pairs, "inputs", truncates=self.truncate, side=self.truncation_direction)


class PairWriter(VectorsWriter):
    """DJLServing's scores, with sigmoid: an array with the score of a pair, or an array of these."""

    def vector(self, data: bytes) -> bytes:
        return b"[%b]" % json_number(sigmoid(data))


def pairs_call(body: Mapping[str, Any], model: ServedModel) -> EmbeddingCall:
    """Return a parsed call for scores. Raise InvalidPayload, or ModelNotFound for a chat."""
    if body.get("messages") is not None:
        require_generation(model.backend, model.name)
    inputs = _inputs(body)
    several = isinstance(inputs, list)
    others = {name: value for name, value in body.items() if name not in (*KEYS, "query", "texts")}
    given = {**others, "inputs": inputs if several else [inputs]}
    payload, ignored = take_known(given, PairsPayload, model.options.strict_parameters)
    return EmbeddingCall(payload.requests(), PairWriter(several=several), ignored)


def _inputs(body: Mapping[str, Any]) -> Any:
    if "query" in body:
        texts = body.get("texts")
        if not isinstance(texts, list):
            raise InvalidPayload("`texts` must be an array of strings, together with `query`")
        return [[body["query"], text] for text in texts]
    if "inputs" in body:
        return body["inputs"]
    return {name: body[name] for name in KEYS if name in body}
