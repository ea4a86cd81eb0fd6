"""Triton's generate extension."""

from collections.abc import Callable, Mapping
from typing import ClassVar

import orjson

from lmi_core.errors import InvalidPayload, LmiError, ModelNotFound
from lmi_core.formatter import OutputFormatter
from lmi_core.handler import Answer, Call, Generation, Handler, Route
from lmi_core.hookspecs import hookimpl
from lmi_core.model import Model
from lmi_core.payload import read_payload
from lmi_core.request import GenerationRequest
from lmi_handlers.statuses import STATUSES
from lmi_handlers.triton_payload import TritonParameters, TritonPayload

VERSION = "1"  # a model has one version here
INVALID_STATUS = 400
ROUTES = tuple(
    Route(f"/v2/models/{{model}}{version}/{verb}", summary=summary, payloads=(TritonPayload,))
    for version in ("", "/versions/{version}")
    for verb, summary in (("generate", "Generate text"), ("generate_stream", "Generate text, step by step"))
)


class TritonHandler(Handler):
    name: ClassVar[str] = "triton"
    routes: ClassVar[tuple[Route, ...]] = ROUTES

    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        return path_parameters["model"]

    def parse(self, call: Call, model: Model) -> Generation:
        version = call.path_parameters.get("version", VERSION)
        if version != VERSION:
            raise ModelNotFound(f"model `{model.name}` has only version {VERSION}. Given: {version}")
        payload = read_payload(call.body, TritonPayload)
        parameters = TritonParameters(payload)
        formatter = _formatter(call.path.endswith("/generate_stream"), parameters)
        request = GenerationRequest(
            payload.text_input,
            parameters.values,
            names=parameters.spellings | {"inputs": "text_input"},
            fits_context=True,
        )
        head = {} if payload.id is None else {"id": payload.id}
        arguments = {
            "head": head | {"model_name": model.name, "model_version": version},
            "outputs": parameters.outputs,
            "count": parameters.num_answers,
        }
        return Generation((request,), formatter, arguments)

    def error(self, error: LmiError, model: Model | None, formatter: OutputFormatter | None) -> Answer:
        status = STATUSES.get(error.kind, INVALID_STATUS)
        return Answer(status, "application/json", orjson.dumps({"error": error.message}))


def _formatter(event_stream: bool, parameters: TritonParameters) -> str:
    if not event_stream:
        if parameters.stream:
            raise InvalidPayload("`stream` must be false here: generate_stream is the route of streams. Given: True")
        return "triton"
    if parameters.stream is False:
        return "triton_event"
    parameters.refuse_hidden_sequences()
    return "triton_stream"


@hookimpl
def lmi_register_handlers(register: Callable[[type[Handler]], None]) -> None:
    register(TritonHandler)
