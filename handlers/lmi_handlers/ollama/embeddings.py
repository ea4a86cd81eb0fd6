"""Ollama's routes for embeddings; the older one accepts a single text."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import orjson
from pydantic import BeforeValidator, ConfigDict, Field

from lmi_core.embedding_backend import require_embeddings
from lmi_core.embedding_call import EmbeddingCall, EmbeddingWriter
from lmi_core.errors import InvalidPayload, ModelNotFound
from lmi_core.generation.embedding_request import EmbeddingRequest, ValidEmbedding
from lmi_core.generation.parameters import as_list
from lmi_core.handler import AnswerForm, Call, Route
from lmi_core.payloads.tolerant_payload import TolerantPayload, take_known
from lmi_core.served_model import ServedModel
from lmi_core.serving.embedding_validation import AS_MANY_AS_FIT
from lmi_handlers.fields.vectors import json_numbers
from lmi_handlers.ollama.answers import OllamaVectorAnswer, OllamaVectorsAnswer
from lmi_handlers.ollama.formatters import Stopwatch
from lmi_handlers.ollama.handler import OllamaHandler, check_name

OLDER = "/api/embeddings"


class OllamaVectors(TolerantPayload):
    """The fields that both routes share."""

    model: str | None = Field(None, description="A model of `GET /api/tags`; may be omitted if only one is served.")
    options: dict[str, Any] | None = Field(None, description="Ignored: sampling parameters do not apply.")
    keep_alive: float | str | None = Field(None, description="Ignored: the model always stays loaded.")


class OllamaEmbed(OllamaVectors):
    """A request for the normalized vectors of texts."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": ["What is Deep Learning?"]}]})

    input: Annotated[list[str], BeforeValidator(as_list, json_schema_input_type=str | list[str])] = Field(
        description="A text, or several."
    )
    truncate: bool | None = Field(None, description="Truncate texts that are too long; with false, they are an error.")
    dimensions: int | None = Field(
        None, ge=1, description="The size of each vector, for models that have several sizes."
    )

    def requests(self) -> tuple[EmbeddingRequest, ...]:
        truncate = None if self.truncate is False else AS_MANY_AS_FIT
        return tuple(
            EmbeddingRequest(text, f"input.{index}", dimensions=self.dimensions, normalize=True, truncate=truncate)
            for index, text in enumerate(self.input)
        )


class OllamaEmbeddings(OllamaVectors):
    """The older request, for the vector of one text, not normalized."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"prompt": "What is Deep Learning?"}]})

    prompt: str = Field(description="The text.")

    def requests(self) -> tuple[EmbeddingRequest, ...]:
        return (EmbeddingRequest(self.prompt, "prompt", normalize=False, truncate=AS_MANY_AS_FIT),)


class OllamaVectorWriter(EmbeddingWriter):
    """The vectors, with times and the number of tokens; the older route returns only the one vector."""

    def __init__(self, model: str, *, older: bool) -> None:
        self._model = model
        self._older = older
        self._stopwatch = Stopwatch()

    def vector(self, data: bytes) -> bytes:
        return json_numbers(data)

    def whole(self, requests: Sequence[ValidEmbedding], vectors: Sequence[bytes]) -> bytes:
        if self._older:
            return b'{"embedding":%b}' % vectors[0]
        tokens = sum(len(request.prompt_ids) for request in requests)
        times = self._stopwatch.durations(tokens, 0)
        counts = {name: times[name] for name in ("total_duration", "load_duration", "prompt_eval_count")}
        head, end = orjson.dumps({"model": self._model})[:-1], orjson.dumps(counts)[1:]
        return b'%b,"embeddings":[%b],%b' % (head, b",".join(vectors), end)


class OllamaEmbeddingHandler(OllamaHandler):
    name: ClassVar[str] = "ollama_embeddings"
    summary: ClassVar[str] = "Ollama's embeddings"
    reads_embeddings: ClassVar[bool] = True
    routes: ClassVar[tuple[Route, ...]] = (
        Route(
            "/api/embed",
            summary="Make vectors of texts",
            payloads=(OllamaEmbed,),
            answers=(AnswerForm(OllamaVectorsAnswer),),
        ),
        Route(
            OLDER,
            summary="Make a vector of a text",
            payloads=(OllamaEmbeddings,),
            answers=(AnswerForm(OllamaVectorAnswer),),
        ),
    )

    def parse(self, call: Call, model: ServedModel) -> EmbeddingCall:
        older = call.path == OLDER
        payload_type: type[OllamaEmbed | OllamaEmbeddings] = OllamaEmbeddings if older else OllamaEmbed
        payload: OllamaEmbed | OllamaEmbeddings
        payload, ignored = take_known(call.json_object(), payload_type, model.options.strict_parameters)
        name = check_name(payload.model, call, model)
        try:
            require_embeddings(model.backend, model.name)
        except ModelNotFound as error:  # clients recognize it by Ollama's message
            raise InvalidPayload(f"this model does not support embeddings: {error.message}") from None
        return EmbeddingCall(payload.requests(), OllamaVectorWriter(name, older=older), ignored)
