"""The handler of Triton's HTTP API: KServe's inference protocol (v2) and the generate extension."""

from collections.abc import Mapping
from typing import ClassVar

from lmi_core.calls.access import Access
from lmi_core.calls.answer import json_answer
from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.handler import Answer, AnswerForm, Call, Generation, Handler, Route, reading
from lmi_core.inference import Inference
from lmi_core.served_model import ServedModel
from lmi_handlers.base.statuses import USUAL
from lmi_handlers.triton.adapters import with_adapters
from lmi_handlers.triton.answers import (
    EMPTY,
    ERRORS,
    GENERATED,
    INFERRED,
    STREAMED,
    IndexedModel,
    TritonConfiguration,
    TritonModel,
    TritonServer,
    TritonStatistics,
)
from lmi_handlers.triton.generate import generate
from lmi_handlers.triton.infer import infer
from lmi_handlers.triton.infer_payload import InferPayload
from lmi_handlers.triton.metadata import (
    IndexPayload,
    all_statistics,
    check_version,
    live,
    model_configuration,
    model_metadata,
    model_ready,
    model_statistics,
    ready,
    repository_index,
    server_metadata,
)
from lmi_handlers.triton.payload import TritonPayload

STATISTICS = (AnswerForm(TritonStatistics),)


def _model_routes(model: str) -> tuple[Route, ...]:
    return (
        Route(f"{model}/generate", summary="Generate text", payloads=(TritonPayload,), answers=GENERATED),
        Route(
            f"{model}/generate_stream",
            summary="Generate text, step by step",
            payloads=(TritonPayload,),
            answers=STREAMED,
        ),
        Route(
            f"{model}/infer",
            summary="Infer from tensors",
            payloads=(InferPayload,),
            compresses=True,
            answers=INFERRED,
        ),
        reading(model, model_metadata, "The model's metadata: its input and output tensors", AnswerForm(TritonModel)),
        reading(f"{model}/config", model_configuration, "The model's configuration", AnswerForm(TritonConfiguration)),
        Route(
            f"{model}/ready", "GET", model_ready, "Whether the model is ready", access=Access.EVERYBODY, answers=EMPTY
        ),
        reading(
            f"{model}/stats",
            model_statistics,
            "The number of the model's requests, and how long they took",
            *STATISTICS,
        ),
    )


class TritonHandler(Handler):
    name: ClassVar[str] = "triton"
    summary: ClassVar[str] = "Triton's HTTP API: KServe's inference protocol and the generate extension"
    errors: ClassVar[tuple[AnswerForm, ...]] = ERRORS
    routes: ClassVar[tuple[Route, ...]] = (
        Route("/v2/models/stats", "GET", all_statistics, "The statistics of all models", answers=STATISTICS),
        *_model_routes("/v2/models/{model}"),
        *_model_routes("/v2/models/{model}/versions/{version}"),
        Route("/v2", "GET", server_metadata, "The server's metadata", answers=(AnswerForm(TritonServer),)),
        Route("/v2/health/live", "GET", live, "Whether the server is running", access=Access.EVERYBODY, answers=EMPTY),
        Route("/v2/health/ready", "GET", ready, "Whether every model is ready", access=Access.EVERYBODY, answers=EMPTY),
        Route(
            "/v2/repository/index",
            "POST",
            repository_index,
            "The models and their states",
            (IndexPayload,),
            access=Access.CLIENTS,
            answers=(AnswerForm(list[IndexedModel]),),
        ),
    )

    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        return path_parameters["model"]

    def name_adapters(self, call: Call, model: ServedModel) -> Call:
        return with_adapters(call)

    def parse(self, call: Call, model: ServedModel) -> Generation | Inference:
        check_version(call, model)
        return infer(call, model) if call.path.endswith("/infer") else generate(call, model)

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        status = USUAL.of(error)
        return json_answer({"error": error.message}, status)
