"""Ollama's routes for embeddings; the older one accepts a single text."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import orjson
from pydantic import BeforeValidator, ConfigDict, Field

from lmi_core.calls.answer import json_answer
from lmi_core.embedding_backend import require_embeddings
from lmi_core.embedding_call import EmbeddingCall, EmbeddingWriter
from lmi_core.errors import InvalidPayload, ModelNotFound
from lmi_core.generation.embedding_request import EmbeddingRequest, ValidEmbedding
from lmi_core.generation.parameters import as_list
from lmi_core.handler import Answer, AnswerForm, Call, Route
from lmi_core.payloads.tolerant_payload import TolerantPayload, take_known
from lmi_core.served_model import ServedModel
from lmi_core.serving.embedding_validation import AS_MANY_AS_FIT
from lmi_handlers.fields.vectors import json_numbers
from lmi_handlers.ollama.answers import OllamaVectorAnswer, OllamaVectorsAnswer
from lmi_handlers.ollama.formatters import Stopwatch
from lmi_handlers.ollama.handler import OllamaHandler, check_name
from lmi_handlers.ollama.payload import KeepAlive

OLDER = "/api/embeddings"


def _texts(given: object) -> object:
    return [] if given in (None, "") else as_list(given)


class OllamaVectors(TolerantPayload):
    """The fields that both routes share."""

    model: str | None = Field(None, description="A model of `GET /api/tags`; may be omitted if only one is served.")
    options: dict[str, Any] | None = Field(None, description="Ignored: sampling parameters do not apply.")
    keep_alive: KeepAlive = Field(None, description="Ignored: the model always stays loaded.")


class OllamaEmbed(OllamaVectors):
    """A request for the normalized vectors of texts."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": ["What is Deep Learning?"]}]})

    input: Annotated[list[str], BeforeValidator(_texts, json_schema_input_type=str | list[str] | None)] = Field(
        [], description="A text, or several; none to check the model."
    )
    truncate: bool | None = Field(None, description="Truncate texts that are too long; with false, they are an error.")
    dimensions: int | None = Field(
        None, ge=0, description="The size of each vector, for models that have several sizes; 0 means the largest."
    )

    def requests(self) -> tuple[EmbeddingRequest, ...]:
        truncate = None if self.truncate is False else AS_MANY_AS_FIT
        return tuple(
            EmbeddingRequest(
                text, f"input.{index}", dimensions=self.dimensions or None, normalize=True, truncate=truncate
            )
            for index, text in enumerate(self.input)
        )


class OllamaEmbeddings(OllamaVectors):
    """The older request, for the vector of one text, not normalized."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"prompt": "What is Deep Learning?"}]})

    prompt: str = Field("", description="The text; may be empty to check the model.")

    def requests(self) -> tuple[EmbeddingRequest, ...]:
        request = EmbeddingRequest(self.prompt, "prompt", normalize=False, truncate=AS_MANY_AS_FIT)
        return (request,) if self.prompt else ()


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

    def parse(self, call: Call, model: ServedModel) -> EmbeddingCall | Answer:
        older = call.path == OLDER
        payload_type: type[OllamaEmbed | OllamaEmbeddings] = OllamaEmbeddings if older else OllamaEmbed
        payload: OllamaEmbed | OllamaEmbeddings
        payload, ignored = take_known(call.json_object(), payload_type, model.options.strict_parameters)
        name = check_name(payload.model, call, model)
        try:
            require_embeddings(model.backend, model.name)
        except ModelNotFound as error:  # clients recognize it by Ollama's message
            raise InvalidPayload(f"this model does not support embeddings: {error.message}") from None
        if requests := payload.requests():
            return EmbeddingCall(requests, OllamaVectorWriter(name, older=older), ignored)
        return json_answer({"embedding": []} if older else {"model": name, "embeddings": []}, ignored=ignored)
