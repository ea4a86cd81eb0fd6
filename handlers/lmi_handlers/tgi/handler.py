"""The handler of the native routes of Text Generation Inference and Text Embeddings Inference."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, ClassVar

import orjson

from lmi_core.calls.access import Access
from lmi_core.calls.answer import json_answer
from lmi_core.embedding_backend import is_reranker, require_embeddings, require_generation
from lmi_core.embedding_call import EmbeddingCall
from lmi_core.errors import InvalidPayload, LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.parameters import MAX_STOPS
from lmi_core.generation.request import GenerationRequest
from lmi_core.handler import Answer, AnswerForm, Call, Generation, Handler, Route
from lmi_core.served_model import ManagedModel, ServedModel, ServedModels
from lmi_handlers.base.adapter_names import with_adapters
from lmi_handlers.base.statuses import Statuses
from lmi_handlers.base.tokenizing import described_model
from lmi_handlers.chat.images import images_in_prompt
from lmi_handlers.fields.embedding_inputs import read_embedding_call
from lmi_handlers.fields.request_headers import TARGET_MODEL_HEADER
from lmi_handlers.fields.vocabulary import refuse_hidden_sequences
from lmi_handlers.tgi.answers import ANSWER, ERRORS, HEALTH, INFO, ROOT, STREAM, VECTORS
from lmi_handlers.tgi.formatters import TgiArrayFormatter, TgiObjectFormatter, TgiStreamFormatter
from lmi_handlers.tgi.payload import TeiPayload, TgiParameters, TgiPayload, TgiRootPayload, take_payload
from lmi_schemas.tgi_errors import error_object

STATUSES = Statuses(
    invalid=422, overloaded=429, generation_failed=424, generation_timeout=500, aborted=500, out_of_memory=500
)


async def info(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with information on the model in the header, or the only one."""
    return json_answer(_info(described_model(call, dispatcher)))


def _info(model: ManagedModel) -> dict[str, Any]:
    longest, generates = model.backend.max_length, model.backend.generates
    places = model.admission.maximum  # one for each sequence
    return {
        "model_id": model.model_id or model.name,
        "model_sha": None,
        "model_pipeline_tag": "text-generation" if generates else _tag(model),
        "max_concurrent_requests": places,
        "max_best_of": places,
        "max_stop_sequences": MAX_STOPS,
        "max_input_tokens": longest - 1 if generates else longest,
        "max_total_tokens": longest,
        "validation_workers": 1,
        "max_client_batch_size": places,
        "router": "lmi-handlers",
        "version": version("lmi-handlers"),
        "sha": None,
        "docker_label": None,
    }


def _tag(model: ManagedModel) -> str:
    return "text-ranking" if is_reranker(model.backend) else "feature-extraction"


async def health(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer 200 if every model accepts requests, otherwise 503."""
    try:
        await dispatcher.health()
    except LmiError as error:
        return error_answer(error)
    return Answer(200, "text/plain; charset=utf-8", b"")


def error_answer(error: LmiError) -> Answer:
    body = orjson.dumps(error_object(error))
    return Answer(STATUSES.of(error), "application/json", body)


class TgiHandler(Handler):
    name: ClassVar[str] = "tgi"
    summary: ClassVar[str] = "Text Generation Inference, and Text Embeddings Inference"
    reads_embeddings: ClassVar[bool] = True
    errors: ClassVar[tuple[AnswerForm, ...]] = ERRORS
    routes: ClassVar[tuple[Route, ...]] = (
        Route(
            "/",
            summary="Generate text, with `stream` token by token; or make vectors, if the model only does that",
            payloads=(TgiRootPayload, TeiPayload),
            answers=(*ROOT, *VECTORS),
        ),
        Route("/generate", summary="Generate text", payloads=(TgiPayload,), answers=ANSWER),
        Route("/generate_stream", summary="Generate text, token by token", payloads=(TgiPayload,), answers=STREAM),
        Route("/embed", summary="Make vectors of texts", payloads=(TeiPayload,), answers=VECTORS),
        Route("/info", "GET", info, summary="The served model and its limits", answers=INFO),
        Route(
            "/health", "GET", health, summary="Whether every model is ready", access=Access.EVERYBODY, answers=HEALTH
        ),
    )

    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        return headers.get(TARGET_MODEL_HEADER)

    def name_adapters(self, call: Call, model: ServedModel) -> Call:
        return with_adapters(call)

    def parse(self, call: Call, model: ServedModel) -> Generation | EmbeddingCall:
        if call.path == "/embed" or (call.path == "/" and not model.backend.generates):
            require_embeddings(model.backend, model.name)
            return read_embedding_call(call.json_object(), model, TeiPayload, as_list=True)
        require_generation(model.backend, model.name)
        payload, ignored = take_payload(call.json_object(), call.path, model.options.strict_parameters)
        formatter = _formatter(call.path, payload.stream)
        given = payload.parameters or TgiParameters()
        parameters, names = given.translated()
        if formatter.one_sequence:
            refuse_hidden_sequences(parameters, names)
        fits_context = given.max_new_tokens is None
        prompt, images = images_in_prompt(payload.inputs, parameters, model)
        request = GenerationRequest(prompt, parameters, names=names, fits_context=fits_context, images=images)
        return Generation((request,), formatter, ignored=ignored)

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        return error_answer(error)


def _formatter(path: str, stream: bool | None) -> OutputFormatter:
    if path == "/":
        return TgiStreamFormatter() if stream else TgiArrayFormatter()
    streams = path == "/generate_stream"
    if stream not in (streams, None):
        raise InvalidPayload(f"`stream` must be {str(streams).lower()} on {path}. Given: {stream}")
    return TgiStreamFormatter() if streams else TgiObjectFormatter()
