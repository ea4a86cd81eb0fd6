"""The handler of SageMaker's runtime API (boto3's `sagemaker-runtime`), which wraps LMI's dialect."""

import struct
from binascii import crc32
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import orjson
from multidict import CIMultiDict
from typing_extensions import TypedDict

from lmi_core.calls.answer import json_answer
from lmi_core.calls.answer_form import failures
from lmi_core.embedding_call import EmbeddingCall
from lmi_core.errors import AdapterNotFound, InvalidPayload, LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.handler import Answer, AnswerForm, Call, Framing, Generation, Route, inquiry
from lmi_core.payloads.plain_text import is_plain_text
from lmi_core.served_model import ServedModel, ServedModels
from lmi_handlers.answers.lmi import ANSWERS
from lmi_handlers.base.adapter_names import ADAPTER_HEADER
from lmi_handlers.fields.request_headers import TARGET_MODEL_HEADER
from lmi_handlers.lmi.handler import PAYLOADS, LmiHandler
from lmi_handlers.lmi.sessions import NEW, REQUEST_TYPE, SESSION_HEADER

CONTENT_TYPE = "application/vnd.amazon.eventstream"
LENGTHS_AND_CHECKSUMS = 16  # bytes of a message in addition to headers and payload
STRING = 7  # the type of a string value in a header
MAX_PAYLOAD = 16 * 1024 * 1024  # botocore refuses messages above 24 MiB

PAYLOAD_PART = {
    ":message-type": "event",
    ":event-type": "PayloadPart",
    ":content-type": "application/octet-stream",
}
ACCEPT_HEADER = "X-Amzn-SageMaker-Accept"  # replaces `Accept` in requests for a stream
INFERENCE_COMPONENT_HEADER = "X-Amzn-SageMaker-Inference-Component"
VARIANT_HEADER = "X-Amzn-SageMaker-Target-Variant"
INVOKED_VARIANT_HEADER = "x-Amzn-Invoked-Production-Variant"
# Headers for endpoint features that this server lacks, with their names in boto3.
REFUSED_HEADERS = {
    "X-Amzn-SageMaker-Target-Container-Hostname": "TargetContainerHostname",
    "X-Amzn-SageMaker-Enable-Explanations": "EnableExplanations",
}
STREAM = "/endpoints/{endpoint}/invocations-response-stream"
# SageMaker reports failures before the model's code as errors of the endpoint, and all others as errors of the model.
ENDPOINT_ERRORS = {
    "unauthorized": ("UnrecognizedClientException", 403),
    "forbidden": ("AccessDeniedException", 403),
    "model_not_found": ("ValidationError", 400),
    "payload_too_large": ("ValidationError", 400),
    "body_timeout": ("ValidationError", 400),
    "unsupported_encoding": ("ValidationError", 400),
    "model_not_ready": ("ModelNotReadyException", 429),
    "overloaded": ("ServiceUnavailable", 503),
    "rate_limited": ("ThrottlingException", 429),
    "backend_unhealthy": ("ServiceUnavailable", 503),
    "internal": ("InternalFailure", 500),
}
MODEL_ERROR = ("ModelError", 424)
INVALID_STATUS = 400
FAILED = 400


class EventStream(Framing):
    """Framing of each write as a `PayloadPart` event, and of a failure as an exception at the end."""

    def headers(self, headers: dict[str, str]) -> dict[str, str]:
        return headers | {"Content-Type": CONTENT_TYPE, "X-Amzn-SageMaker-Content-Type": headers["Content-Type"]}

    def frame(self, data: bytes) -> bytes:
        parts = [data[start : start + MAX_PAYLOAD] for start in range(0, len(data), MAX_PAYLOAD)]
        return b"".join([message(PAYLOAD_PART, part) for part in parts])

    def failure(self, error: LmiError) -> bytes:
        content = {"Message": error.message}
        if error.kind == "generation_timeout":
            return _exception("ModelStreamError", content | {"ErrorCode": "ModelInvocationTimeExceeded"})
        return _exception("InternalStreamFailure", content)


def message(headers: dict[str, str], payload: bytes) -> bytes:
    """Return an encoded message: lengths, their checksum, headers, payload, and the checksum of all."""
    head = b"".join([_header(name, value) for name, value in headers.items()])
    lengths = struct.pack("!II", LENGTHS_AND_CHECKSUMS + len(head) + len(payload), len(head))
    checked = lengths + struct.pack("!I", crc32(lengths)) + head + payload
    return checked + struct.pack("!I", crc32(checked))


def _exception(name: str, content: dict[str, str]) -> bytes:
    headers = {":message-type": "exception", ":exception-type": name, ":content-type": "application/json"}
    return message(headers, orjson.dumps(content))


def _header(name: str, value: str) -> bytes:
    name_bytes, value_bytes = name.encode(), value.encode()
    return struct.pack("!B", len(name_bytes)) + name_bytes + struct.pack("!BH", STRING, len(value_bytes)) + value_bytes


async def refuse_asynchronous(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer in the form of boto3's errors: SageMaker itself reads and writes S3, and calls `/invocations`."""
    message = "asynchronous calls need SageMaker, which calls this server for each; invoke_endpoint answers at once"
    return _error("ValidationError", INVALID_STATUS, {"Message": message})


# Failures before and in the model's code, as boto3 reads them.
EndpointError = TypedDict("EndpointError", {"__type": str, "Message": str})
ModelError = TypedDict("ModelError", {"__type": str, "Message": str, "OriginalStatusCode": int, "OriginalMessage": str})


class SageMakerHandler(LmiHandler):
    """The handler of SageMaker's runtime API; any endpoint name reaches this server."""

    name: ClassVar[str] = "sagemaker"
    summary: ClassVar[str] = "SageMaker's runtime, for boto3"
    errors: ClassVar[tuple[AnswerForm, ...]] = (
        failures(EndpointError, *(status for _, status in ENDPOINT_ERRORS.values())),
        failures(ModelError, MODEL_ERROR[1]),
    )
    routes: ClassVar[tuple[Route, ...]] = (
        Route(
            "/endpoints/{endpoint}/invocations",
            summary="Generate text through the API of SageMaker's runtime",
            payloads=PAYLOADS,
            plain_text=True,
            answers=ANSWERS,
        ),
        Route(
            STREAM,
            summary="Generate text through the API of SageMaker's runtime, as an event stream",
            payloads=PAYLOADS,
            plain_text=True,
            framing=EventStream(),
            answers=(AnswerForm(None, CONTENT_TYPE),),
        ),
        inquiry(
            "/endpoints/{endpoint}/async-invocations",
            refuse_asynchronous,
            "Refused: this server does not store answers for later",
            PAYLOADS,
            failures(EndpointError, INVALID_STATUS),
        ),
    )

    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        return headers.get(TARGET_MODEL_HEADER)

    def model_name_in_body(self, call: Call) -> str | None:
        """Return the body's model or, without one, the inference component's or the variant's."""
        named = super().model_name_in_body(call)
        return named or call.headers.get(INFERENCE_COMPONENT_HEADER) or call.headers.get(VARIANT_HEADER)

    def served_name(self, name: str, models: ServedModels) -> str:
        return models.find_with_adapters(name).name

    def receive(self, call: Call, model: ServedModel) -> Call:
        """Return the call with a container's headers. Raise InvalidPayload for a refused header."""
        for header, name in REFUSED_HEADERS.items():
            if header in call.headers:
                raise InvalidPayload(f"`{name}` is not supported: this server is a single container")
        headers = CIMultiDict(call.headers)
        if ACCEPT_HEADER in headers:
            headers["Accept"] = headers[ACCEPT_HEADER]
        component = headers.get(INFERENCE_COMPONENT_HEADER, model.name)
        if component in model.adapters.folders and component not in model.names:
            headers.add(ADAPTER_HEADER, component)  # must match the client's header, if it sent one
        return super().receive(replace(call, headers=headers), model)

    def parse(self, call: Call, model: ServedModel) -> Generation | EmbeddingCall | Answer:
        _check_stream(call)
        parsed = super().parse(call, model)
        variant = call.headers.get(VARIANT_HEADER)
        if variant is not None:
            parsed = replace(parsed, headers={**parsed.headers, INVOKED_VARIANT_HEADER: variant})
        unknown = _unknown_component(call, model)
        return replace(parsed, ignored=(*parsed.ignored, *unknown)) if unknown else parsed

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        if error.kind in ENDPOINT_ERRORS:
            return _error(*ENDPOINT_ERRORS[error.kind], {"Message": error.message})
        return _model_error(super().error(error, model, formatter), error.message)

    def relayed(self, answer: Answer) -> Answer:
        if answer.status < FAILED:
            return answer
        return _model_error(answer, f"the model answered with status {answer.status}")


def _check_stream(call: Call) -> None:
    """Raise InvalidPayload if a streaming call starts or ends a session, which AWS does not support."""
    if not call.path.endswith(STREAM.rpartition("/")[2]):
        return
    in_body = not is_plain_text(call.headers) and REQUEST_TYPE in call.json_object()
    if in_body or call.headers.get(SESSION_HEADER) == NEW:
        raise InvalidPayload("sessions are opened and closed by InvokeEndpoint, not by a stream")


def _unknown_component(call: Call, model: ServedModel) -> tuple[str, ...]:
    """Return boto3's name of a component that is neither the model nor one of its adapters, if it has adapters.

    The component is then the model itself under another name. Raise AdapterNotFound if parameters are strict.
    """
    component, adapters = call.headers.get(INFERENCE_COMPONENT_HEADER), model.adapters.folders
    if component is None or not adapters or component in model.names or component in adapters:
        return ()
    if model.options.strict_parameters:
        raise AdapterNotFound.of(component, adapters)
    return ("InferenceComponentName",)


def _model_error(answer: Answer, message: str) -> Answer:
    original: dict[str, str | int] = {
        "OriginalStatusCode": answer.status,
        "OriginalMessage": answer.body.decode(errors="replace"),
    }
    return _error(*MODEL_ERROR, {"Message": message, **original})


def _error(name: str, status: int, content: dict[str, str | int]) -> Answer:
    return json_answer({"__type": name, **content}, status)
