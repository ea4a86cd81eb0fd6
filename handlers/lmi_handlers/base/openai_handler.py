"""The base of OpenAI's handlers: names of models, and the form of errors."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import ClassVar

from lmi_core.calls.answer import json_answer
from lmi_core.errors import ContextLengthExceeded, InvalidPayload, LmiError, ModelNotFound
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_core.formatter import OutputFormatter
from lmi_core.handler import Answer, AnswerForm, Call, Handler
from lmi_core.payloads.payload import quote
from lmi_core.served_model import ManagedModel, ServedModel, ServedModels
from lmi_handlers.answers.openai import ERRORS
from lmi_handlers.base.statuses import USUAL
from lmi_handlers.fields.request_headers import TARGET_MODEL_HEADER

FIELD = re.compile(r"`([\w.]+)`")  # at the start of an error message
# Placeholders sent by clients that know only one model: by huggingface_hub, in TGI's examples for OpenAI's client (TGI
# ignores the name), and to vLLM's server, which accepts an empty name.
NO_NAME = frozenset({"dummy", "tgi", ""})
URL = re.compile(r"https?://", re.I)  # @huggingface/inference sends the server's own address as the name
CODES = {"unauthorized": "invalid_api_key", "rate_limited": "rate_limit_exceeded"}  # OpenAI's own
JSON_LINES = "application/jsonlines"  # in `Accept`, requests a stream in LMI's schemas


class OpenAiHandler(Handler):
    adapters_are_models: ClassVar[bool] = True
    errors: ClassVar[tuple[AnswerForm, ...]] = ERRORS

    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        return headers.get(TARGET_MODEL_HEADER)

    def model_name_in_body(self, call: Call) -> str | None:
        name = call.json_object().get("model")
        return name if isinstance(name, str) and name else None

    def name_adapters(self, call: Call, model: ServedModel) -> Call:
        return take_adapter_model(call, model)

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        status = USUAL.of(error, model)
        content = {
            "message": _message(error, model),
            "type": _type(status),
            "param": self.param(error, status),
            "code": self.code(error),
        }
        return json_answer({"error": content}, status)

    def param(self, error: LmiError, status: int) -> str | None:
        """Return the `param` of an error, its field."""
        field = FIELD.match(error.message) if status == USUAL.invalid else None
        return field[1] if field else None

    def code(self, error: LmiError) -> str:
        """Return the `code` of an error."""
        return CODES.get(error.kind, error.kind)


def _find_exactly(given: str, names: Collection[str]) -> str | None:
    return given if given in names else None


def take_adapter_model(
    call: Call, model: ServedModel, find: Callable[[str, Collection[str]], str | None] = _find_exactly
) -> Call:
    """Take an adapter's name in `model` for the model with that adapter, as vLLM does; `find` matches names."""
    try:
        payload = call.json_object()
    except InvalidPayload:
        return call  # left for `parse`, which may get it in another form
    name = payload.get("model")
    if not isinstance(name, str) or find(name, model.names) is not None:
        return call
    if (found := find(name, model.adapters.folders)) is None:
        return call
    named = payload.get("adapters")
    if named not in (None, [], found, [found]):
        raise InvalidPayload(f"`model` and `adapters` name different adapters: {quote(name)} and {quote(named)}")
    return call.with_json({**payload, "adapters": found})


def asked_model(call: Call, dispatcher: ServedModels, name: str | None) -> ManagedModel:
    """Return the model of a call that generates nothing. Raise ModelNotFound if it is not served."""
    header = call.headers.get(TARGET_MODEL_HEADER)
    if header is None and len(dispatcher.models) > 1:
        return dispatcher.find_with_adapters(name or None)
    model = dispatcher.version_asked(name) if header is None else dispatcher.find(header)
    check_model(name, call, model)
    return model


def _message(error: LmiError, model: ServedModel | None) -> str:
    """Return the message, worded so that clients such as LiteLLM recognise errors of the context length."""
    if model is None or not isinstance(error, ContextLengthExceeded):
        return error.message
    return f"This model's maximum context length is {model.backend.max_length} tokens. However, {error.message}"


def check_model(name: str | None, call: Call, model: ServedModel) -> None:
    """Raise ModelNotFound if `name` is neither the model nor one of its adapters, unless a header chose the model."""
    if name is None or name in model.names or name in model.adapter_names:
        return
    strict = model.options.strict_model_name
    is_placeholder = name in NO_NAME or URL.match(name) is not None
    if not strict and (is_placeholder or model.options.any_model_name or TARGET_MODEL_HEADER in call.headers):
        return
    known = (*model.names, *model.adapter_names)
    hint = did_you_mean(name, known)
    if strict and is_placeholder:
        hint = " With option.strict_model_name=true `model` must be a name of the model, or be omitted."
    raise ModelNotFound(f"model `{name}` is not served.{hint} Served: {', '.join(known)}")


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"
