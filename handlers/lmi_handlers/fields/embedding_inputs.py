"""The request and the answer for vectors that LMI and Text Embeddings Inference (TEI) share."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from lmi_core.embedding_call import EmbeddingCall, EmbeddingWriter
from lmi_core.generation.embedding_request import EmbeddingRequest, ValidEmbedding
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_core.served_model import ServedModel
from lmi_core.serving.embedding_validation import AS_MANY_AS_FIT
from lmi_handlers.fields.openai_tolerance import Refusal, Tolerance, take_fields
from lmi_handlers.fields.vectors import CutSide, json_numbers

NO_PROMPT = Refusal("no prompt is added: write it at the beginning of each text")
TOLERANCE = Tolerance(frozenset(), {"prompt_name": NO_PROMPT})


class TruncationFields(TolerantPayload):
    """TEI's fields for texts that are too long."""

    truncate: bool | None = Field(None, description="Truncate texts that are too long. Default: they are an error.")
    truncation_direction: CutSide | None = Field(None, description="The side to truncate. Default: the tokenizer's.")


class EmbeddingInputs(TruncationFields):
    """TEI's embedding request."""

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


class EmbeddingPayload(EmbeddingInputs):
    """LMI's embedding request, with TEI's fields."""

    model: str | None = Field(None, description="The name of the model; required if several are served.")


class VectorsWriter(EmbeddingWriter):
    """A vector for a text, or a list of them for a list of texts."""

    def __init__(self, *, several: bool) -> None:
        self._several = several

    def vector(self, data: bytes) -> bytes:
        return json_numbers(data)

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        return b"[%b]" % b",".join(vectors) if self._several else vectors[0]


def read_embedding_call(
    body: Mapping[str, Any], model: ServedModel, payload_type: type[EmbeddingInputs], *, as_list: bool = False
) -> EmbeddingCall:
    """Return a parsed call for embeddings; `as_list` puts a single text's vector in a list too.

    Raise InvalidPayload if a field is invalid.
    """
    payload, ignored = take_fields(body, payload_type, model.options.strict_parameters, TOLERANCE)
    several = as_list or isinstance(payload.inputs, list)
    return EmbeddingCall(payload.requests(), VectorsWriter(several=several), ignored)
