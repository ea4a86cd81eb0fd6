"""The handler of SageMaker's runtime API (boto3's `sagemaker-runtime`), which wraps LMI's dialect."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

import orjson
from multidict import CIMultiDict

from lmi_core.calls.served_model import ServedModel
from lmi_core.errors import InvalidPayload, LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.handler import Answer, Call, Handler, Route
from lmi_core.hookspecs import hookimpl
from lmi_handlers.http.adapter_names import ADAPTER_HEADER
from lmi_handlers.lmi.handler import PAYLOADS, TARGET_MODEL_HEADER, LmiHandler
from lmi_handlers.sagemaker.events import EventStream

ACCEPT_HEADER = "X-Amzn-SageMaker-Accept"  # stands for `Accept` in calls for a stream
INFERENCE_COMPONENT_HEADER = "X-Amzn-SageMaker-Inference-Component"
# Headers for features of endpoints that this server lacks, and boto3's names of them.
REFUSED_HEADERS = {
    "X-Amzn-SageMaker-Target-Variant": "TargetVariant",
    "X-Amzn-SageMaker-Target-Container-Hostname": "TargetContainerHostname",
    "X-Amzn-SageMaker-Enable-Explanations": "EnableExplanations",
    "X-Amzn-SageMaker-Session-Id": "SessionId",
}

# SageMaker reports failures before the model as the endpoint's error, all others as the model's.
ENDPOINT_ERRORS = {
    "model_not_found": ("ValidationError", 400),
    "payload_too_large": ("ValidationError", 400),
    "model_not_ready": ("ModelNotReadyException", 429),
    "overloaded": ("ServiceUnavailable", 503),
    "backend_unhealthy": ("ServiceUnavailable", 503),
    "internal": ("InternalFailure", 500),
}
MODEL_ERROR = ("ModelError", 424)
FAILED = 400


class SageMakerHandler(LmiHandler):
    """The handler of SageMaker's runtime API; any endpoint name reaches this server."""

    name: ClassVar[str] = "sagemaker"
    routes: ClassVar[tuple[Route, ...]] = (
        Route(
            "/endpoints/{endpoint}/invocations",
            summary="Generate text as SageMaker's runtime",
            payloads=PAYLOADS,
            plain_text=True,
        ),
        Route(
            "/endpoints/{endpoint}/invocations-response-stream",
            summary="The same, as an event stream",
            payloads=PAYLOADS,
            plain_text=True,
            framing=EventStream(),
        ),
    )

    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        return headers.get(TARGET_MODEL_HEADER)

    def receive(self, call: Call, model: ServedModel) -> Call:
        """Return the call with a container's headers. Raise InvalidPayload where a header is one that is refused."""
        for header, name in REFUSED_HEADERS.items():
            if header in call.headers:
                raise InvalidPayload(f"`{name}` has no meaning for this server, which has one variant of each model")
        headers = CIMultiDict(call.headers)
        if ACCEPT_HEADER in headers:
            headers["Accept"] = headers[ACCEPT_HEADER]
        component = headers.pop(INFERENCE_COMPONENT_HEADER, model.name)
        if component not in model.names:
            headers.add(ADAPTER_HEADER, component)  # must agree with one that the client sent
        return super().receive(replace(call, headers=headers), model)

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        if error.kind in ENDPOINT_ERRORS:
            return _error(*ENDPOINT_ERRORS[error.kind], {"Message": error.message})
        return _model_error(super().error(error, model, formatter), error.message)

    def relayed(self, answer: Answer) -> Answer:
        if answer.status < FAILED:
            return answer
        return _model_error(answer, f"the model answered with status {answer.status}")


def _model_error(answer: Answer, message: str) -> Answer:
    original: dict[str, str | int] = {
        "OriginalStatusCode": answer.status,
        "OriginalMessage": answer.body.decode(errors="replace"),
    }
    return _error(*MODEL_ERROR, {"Message": message, **original})


def _error(name: str, status: int, content: dict[str, str | int]) -> Answer:
    return Answer(status, "application/json", orjson.dumps({"__type": name, **content}))


@hookimpl
def lmi_register_handlers(register: Callable[[type[Handler]], None]) -> None:
    register(SageMakerHandler)
