"""LMI's requests for vectors and for scores of pairs, on the same routes as generation."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from lmi_core.embedding_backend import require_generation
from lmi_core.embedding_call import EmbeddingCall, EmbeddingWriter
from lmi_core.errors import InvalidPayload
from lmi_core.generation.embedding_request import EmbeddingRequest, ValidEmbedding
from lmi_core.payloads.tolerant_payload import TolerantPayload, take_known
from lmi_core.served_model import ServedModel
from lmi_core.serving.embedding_validation import AS_MANY_AS_FIT
from lmi_handlers.fields.openai_tolerance import Refusal, Tolerance, take_fields
from lmi_handlers.fields.parameter_fields import RequestPart
from lmi_handlers.fields.vectors import CutSide, json_number, json_numbers, scores_of, sigmoid

KEYS = ("text", "text_pair", "key", "value")
NO_PROMPT = Refusal("no prompt is added: write it at the beginning of each text")
TOLERANCE = Tolerance(frozenset(), {"prompt_name": NO_PROMPT})


class TruncationFields(TolerantPayload):
    """The model, and Text Embeddings Inference's fields for texts that are too long."""

    model: str | None = Field(None, description="The name of the model; required if several are served.")
    truncate: bool | None = Field(None, description="Truncate texts that are too long. Default: they are an error.")
    truncation_direction: CutSide | None = Field(None, description="The side to truncate. Default: the tokenizer's.")


class EmbeddingPayload(TruncationFields):
    """LMI's embedding request, with the fields of Text Embeddings Inference."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": "What is Deep Learning?"}]})

    inputs: str | Annotated[list[str], Field(min_length=1)] = Field(description="A text, or several.")
    normalize: bool | None = Field(None, description="Normalize vectors to length 1. Default: as in the model.")
    dimensions: int | None = Field(None, ge=1, description="The size of each vector, if the model has several.")

    def requests(self) -> tuple[EmbeddingRequest, ...]:
        """Return a request for each text."""
        several = isinstance(self.inputs, list)
        return tuple(
            EmbeddingRequest(
                text,
                f"inputs.{index}" if several else "inputs",
                dimensions=self.dimensions,
                normalize=self.normalize,
                truncate=AS_MANY_AS_FIT if self.truncate else None,
                truncation_side=self.truncation_direction,
            )
            for index, text in enumerate(self.inputs if isinstance(self.inputs, list) else [self.inputs])
        )


class LmiEmbeddingWriter(EmbeddingWriter):
    """A vector for a text, or a list of them for a list of texts."""

    def __init__(self, *, several: bool) -> None:
        self._several = several

    def vector(self, data: bytes) -> bytes:
        return json_numbers(data)

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        return b"[%b]" % b",".join(vectors) if self._several else vectors[0]


def embedding_call(body: Mapping[str, Any], model: ServedModel) -> EmbeddingCall:
    """Return a parsed call for embeddings. Raise InvalidPayload, or ModelNotFound for a chat."""
    if body.get("messages") is not None:
        require_generation(model.backend, model.name)
    payload, ignored = take_fields(body, EmbeddingPayload, model.options.strict_parameters, TOLERANCE)
    return EmbeddingCall(payload.requests(), LmiEmbeddingWriter(several=isinstance(payload.inputs, list)), ignored)


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

    inputs: Annotated[list[Annotated[TextPair, BeforeValidator(_as_pair)]], Field(min_length=1)] = Field(
        description="A pair of texts, or several."
    )

    def requests(self) -> tuple[EmbeddingRequest, ...]:
        """Return a request for each pair, for the model's own score."""
        pairs = [(pair.text, pair.text_pair) for pair in self.inputs]
        return scores_of(pairs, "inputs", truncates=self.truncate, side=self.truncation_direction)


class PairWriter(LmiEmbeddingWriter):
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
