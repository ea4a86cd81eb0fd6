"""The handler of the LMI dialect (LMI handlers Inference API Schema, v0.28), for rolling and dynamic batches."""

import csv
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from lmi_core.calls.answer import json_answer
from lmi_core.embedding_backend import is_reranker
from lmi_core.embedding_call import EmbeddingCall
from lmi_core.errors import InvalidPayload, LmiError, ModelNotFound
from lmi_core.formatter import OutputFormatter, join_events
from lmi_core.generation.images import ImageSource
from lmi_core.generation.parameters import ParametersObject
from lmi_core.generation.request import GenerationRequest
from lmi_core.handler import Answer, AnswerForm, Call, Generation, Handler, Route
from lmi_core.payloads.payload import check_payload, quote
from lmi_core.payloads.plain_text import is_csv, is_plain_text, read_plain_text
from lmi_core.payloads.tolerant_payload import ExactNumbers, TolerantPayload, take_known
from lmi_core.served_model import ServedModel
from lmi_handlers.answers.lmi import ANSWERS, ERRORS
from lmi_handlers.base.adapter_names import with_adapters
from lmi_handlers.base.statuses import Statuses, front_end_error
from lmi_handlers.chat.generation import ChatForm, chat_generation
from lmi_handlers.chat.images import images_in_prompt
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.fields.embedding_inputs import EmbeddingPayload
from lmi_handlers.fields.openai_tolerance import take_fields, take_own, with_own
from lmi_handlers.fields.request_headers import MODEL_VERSION, TARGET_MODEL_HEADER, find_outside
from lmi_handlers.fields.tgi_grammar import TgiGrammar, use_grammar
from lmi_handlers.fields.vocabulary import TGI_NAMES, VLLM_NAMES, refuse_hidden_sequences, sample_as_tgi, translate
from lmi_handlers.lmi import async_mode
from lmi_handlers.lmi.embeddings import PairsPayload, embedding_call, pairs_call
from lmi_handlers.lmi.sessions import REQUEST_TYPE, SESSION_HEADER, session_answer, session_headers

VALIDATION_STATUS = 424  # "If there is an issue with payload validation"
STATUSES = Statuses(invalid=VALIDATION_STATUS, adapter_not_found=VALIDATION_STATUS)
# Parameters of vLLM and transformers that LMI passes through; each applies unless LMI's own name is given.
ENGINE_NAMES = {**VLLM_NAMES, "min_new_tokens": "min_length"}
NEW_TOKENS = ("max_new_tokens", "max_tokens")  # the names of that limit
BEFORE_DISPATCH = (
    "unauthorized",
    "forbidden",
    "payload_too_large",
    "body_timeout",
    "unsupported_encoding",
    "model_not_found",
    "model_not_ready",
    "overloaded",
    "rate_limited",
)

Prompt = Annotated[str, Field(min_length=1)]
SAMPLED: dict[str, JsonValue] = {"do_sample": True, "max_new_tokens": 256}
EXAMPLES: list[JsonValue] = [
    {"inputs": "What is Deep Learning?", "parameters": SAMPLED | {"details": True}, "stream": stream}
    for stream in (False, True)
]


class Payload(TolerantPayload):
    parameters: ParametersObject | None = Field(None, description="The generation parameters.")
    stream: bool | None = Field(None, description="Stream the answer token by token.")
    model: str | None = Field(None, description="The name of the model; required if several are served.")


def _one(inputs: object) -> object:
    if isinstance(inputs, list):  # as LMI's containers accepted before v0.28
        raise ValueError(
            "must be a string; lists of strings need option.rolling_batch=disable, and no option.async_mode"
        )
    return inputs


class RollingBatchPayload(Payload):
    model_config = ConfigDict(json_schema_extra={"examples": EXAMPLES})

    inputs: Annotated[Prompt, BeforeValidator(_one, json_schema_input_type=Prompt)] = Field(description="The prompt.")


def _as_list(inputs: object) -> object:
    if not isinstance(inputs, (str, list)):
        raise ValueError("must be a string, or a list of strings")
    return [inputs] if isinstance(inputs, str) else inputs


class DynamicBatchPayload(Payload):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"inputs": "What is Deep Learning?", "parameters": SAMPLED}]}
    )

    inputs: Annotated[
        list[Prompt], Field(min_length=1), BeforeValidator(_as_list, json_schema_input_type=Prompt | list[Prompt])
    ] = Field(description="The prompt, or a list of prompts.")


class _Grammar(BaseModel):
    grammar: TgiGrammar


class _MaxLength(ExactNumbers):
    model_config = ConfigDict(strict=True)

    max_length: Annotated[int, Field(ge=1)]


OUTPUT_FORMATTER = "output_formatter"
FORMATTERS = ("json", "jsonlines", "sse")  # those that a request may name
PAYLOADS = (RollingBatchPayload, DynamicBatchPayload, ChatRequest, EmbeddingPayload, PairsPayload)


def _generating(path: str, summary: str) -> Route:
    return Route(path, summary=summary, payloads=PAYLOADS, plain_text=True, answers=ANSWERS)


class LmiHandler(Handler):
    name: ClassVar[str] = "lmi"
    summary: ClassVar[str] = "LMI's API, of DJLServing and SageMaker's containers"
    reads_embeddings: ClassVar[bool] = True
    errors: ClassVar[tuple[AnswerForm, ...]] = ERRORS
    routes: ClassVar[tuple[Route, ...]] = (
        _generating("/invocations", "Generate text"),
        _generating("/predictions/{model}", "Generate text with the named model"),
        _generating("/predictions/{model}/{version}", "The same"),
        _generating("/models/{model}/invoke", "The same, for SageMaker's multi-model endpoints"),
    )

    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        return path_parameters.get("model") or headers.get(TARGET_MODEL_HEADER)

    def model_name_in_body(self, call: Call) -> str | None:
        if is_plain_text(call.headers):
            return None
        with suppress(InvalidPayload):  # model functions take bodies of any type
            name = call.json_object().get("model")
            return name if isinstance(name, str) else None
        return None

    def receive(self, call: Call, model: ServedModel) -> Call:
        """Return the call unchanged. Raise ModelNotFound for an unknown version of the model."""
        served = model.version
        if served is None:
            return call
        version = call.path_parameters.get("version") or find_outside(MODEL_VERSION, call.query, call.headers)
        if version not in (served, None):
            raise ModelNotFound(f"model `{model.name}` is only served in version {served}. Given: {version}")
        return call

    def name_adapters(self, call: Call, model: ServedModel) -> Call:
        if is_reranker(model.backend) and not is_plain_text(call.headers) and isinstance(pairs := call.json(), list):
            call = call.with_json({"inputs": pairs})  # as DJLServing expects them
        call = with_adapters(call)
        return async_mode.with_adapter_as_model(call, model) if model.options.asynchronous else call

    def parse(self, call: Call, model: ServedModel) -> Generation | EmbeddingCall | Answer:
        payload = _payload(call)
        if REQUEST_TYPE in payload:
            return session_answer(payload, call, model)
        if not model.backend.generates:
            _check_model(payload, model)
            return (pairs_call if is_reranker(model.backend) else embedding_call)(payload, model)
        generation = _generation(payload, call, model)
        headers = session_headers(call, model) if SESSION_HEADER in call.headers else {}
        return replace(generation, headers=headers) if headers else generation

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        status = STATUSES.of(error, model)
        asynchronous = model is not None and model.options.asynchronous is not None
        if error.kind not in BEFORE_DISPATCH:
            if model is not None and model.options.dynamic_batching:
                status = VALIDATION_STATUS
                formatter = formatter or model.new_formatter("dynamic_json")
            elif asynchronous or isinstance(error, InvalidPayload):
                formatter = None
            if formatter is not None:
                words = join_events(formatter.error(error))  # first, because it may set the content type
                return Answer(status, formatter.content_type, words)
        content = {"error": error.message, "code": status}
        if error.kind in BEFORE_DISPATCH:
            content = front_end_error(error.message, status)
        return json_answer(content, status)


def _payload(call: Call) -> dict[str, Any]:
    """Return the body's JSON object, or plain text as a prompt. Raise InvalidPayload if the body is neither."""
    if is_plain_text(call.headers):
        text = read_plain_text(call.body, call.headers)
        return {"inputs": _prompts(text) if is_csv(call.headers) else text}
    return call.json_object()


def _prompts(text: str) -> str | list[str]:
    """Return the prompts in the column `inputs`, only one as a string. Raise InvalidPayload without this column."""
    try:
        rows = list(csv.DictReader(StringIO(text, newline="")))
        prompts = [row["inputs"] for row in rows]
    except csv.Error as error:
        raise InvalidPayload(f"the body is not valid CSV: {error}") from None
    except KeyError:
        raise InvalidPayload("CSV must have a header with the column `inputs`") from None
    return prompts[0] if len(prompts) == 1 else prompts


def _generation(payload: Mapping[str, Any], call: Call, model: ServedModel) -> Generation:
    asynchronous = model.options.asynchronous is not None
    if asynchronous and "prompt" in payload:
        _check_model(payload, model)
        return async_mode.completion(payload, call, model)
    is_chat = payload.get("messages") is not None and not (asynchronous and "inputs" in payload)
    if is_chat:  # any `model` is valid in LMI's schema
        return _chat(payload, call, model)
    _check_model(payload, model)
    return _dynamic(payload, model) if model.options.dynamic_batching else _rolling(payload, call, model)


def _check_model(payload: Mapping[str, Any], model: ServedModel) -> None:
    if payload.get("model") in (None, *model.names):
        return
    further = (*model.adapter_names, async_mode.MODEL) if model.options.asynchronous else ()
    if payload["model"] not in further:
        known = " or ".join(model.names)
        raise ModelNotFound(f"`model` must be {known}, or be omitted. Given: {quote(payload['model'])}")


def _chat(body: Mapping[str, Any], call: Call, model: ServedModel) -> Generation:
    given, own = take_own(body, model, ChatRequest)
    payload, ignored = take_fields(given, ChatRequest, model.options.strict_parameters)
    call = payload.identify(call)
    generation = chat_generation(payload, call, model, _chat_form(model, bool(payload.stream)))
    return with_own(replace(generation, ignored=ignored, request_id=call.request_id), own)


def _chat_form(model: ServedModel, stream: bool) -> ChatForm:
    names = model.chat_formatters
    if model.options.asynchronous and not names.everywhere:
        return async_mode.chat_form(stream)
    return ChatForm(partial(model.new_chat_formatter, names.stream if stream else names.whole))


def _rolling(body: Mapping[str, Any], call: Call, model: ServedModel) -> Generation:
    payload, ignored = take_known(body, RollingBatchPayload, model.options.strict_parameters)
    payload, formatter = _with_formatter(payload, model)
    request = _request(payload.inputs, payload, model)
    if model.options.asynchronous:
        if payload.stream:
            refuse_hidden_sequences(request.parameters, request.names)
        formatter.engine_form = async_mode.engine_form(
            request.parameters, call, model, name=payload.model, stream=bool(payload.stream)
        )
    return Generation((request,), formatter, ignored=ignored)


def _with_formatter(payload: RollingBatchPayload, model: ServedModel) -> tuple[RollingBatchPayload, OutputFormatter]:
    """Return the payload without `parameters.output_formatter`, and the formatter.

    In v0.28, only LMI's own schema has this parameter.
    """
    given = payload.parameters or {}
    if given.get(OUTPUT_FORMATTER) not in FORMATTERS or model.options.tgi_compat or model.options.asynchronous:
        return payload, _formatter(payload, model)
    others = {name: value for name, value in given.items() if name != OUTPUT_FORMATTER}
    return payload.model_copy(update={"parameters": others}), model.new_formatter(given[OUTPUT_FORMATTER])


def _dynamic(body: Mapping[str, Any], model: ServedModel) -> Generation:
    payload, ignored = take_known(body, DynamicBatchPayload, model.options.strict_parameters)
    if given := (payload.parameters or {}).get("details"):
        raise InvalidPayload(f"`parameters.details` is only available with rolling batch. Given: {quote(given)}")
    payload, max_length = _with_max_length(payload)
    requests = tuple(_request(prompt, payload, model) for prompt in payload.inputs)
    if max_length is not None:
        requests = tuple(replace(request, max_length=max_length, fits_context=True) for request in requests)
    return Generation(requests, _formatter(payload, model), ignored=ignored)


def _with_max_length(payload: DynamicBatchPayload) -> tuple[DynamicBatchPayload, int | None]:
    """Return the payload without `parameters.max_length`, and its value.

    With dynamic batches, LMI passes it on to transformers' pipeline, where `max_new_tokens` takes precedence.
    """
    given = payload.parameters or {}
    if given.get("max_length") is None or any(given.get(name) is not None for name in NEW_TOKENS):
        return payload, None
    others = {name: value for name, value in given.items() if name != "max_length"}
    max_length = check_payload({"max_length": given["max_length"]}, _MaxLength).max_length
    return payload.model_copy(update={"parameters": others}), max_length


def _request(prompt: str, payload: Payload, model: ServedModel) -> GenerationRequest:
    given = dict(payload.parameters or {})
    grammar = given.pop("grammar", None)
    parameters, names = translate(given, _names(given))
    if grammar is not None:
        use_grammar(check_payload({"grammar": grammar}, _Grammar).grammar, parameters, names)
    images: tuple[ImageSource, ...] = ()
    if model.options.tgi_compat:
        prompt, images = images_in_prompt(prompt, parameters, model)
        sample_as_tgi(parameters)
        parameters.setdefault("details", True)
    if model.options.asynchronous:
        async_mode.sample_as_vllm(parameters)
    return GenerationRequest(prompt, parameters, names=names, images=images)


def _names(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the alternative names of LMI's parameters for this request."""
    is_flag = isinstance(given.get("stop"), bool)  # a parameter of TensorRT-LLM's
    names = {} if is_flag else dict(TGI_NAMES)
    taken = {name for name, value in given.items() if value is not None}
    for spelling, name in ENGINE_NAMES.items():
        if spelling in taken and name not in taken:
            names[spelling] = name
            taken.add(name)
    return names


def _formatter(payload: Payload, model: ServedModel) -> OutputFormatter:
    return model.new_formatter(model.formatters.stream if payload.stream else model.formatters.whole)
