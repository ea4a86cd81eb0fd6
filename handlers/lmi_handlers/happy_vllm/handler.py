"""The handler of happy_vllm's generating endpoints, and its route that aborts a request."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import orjson
from pydantic import ConfigDict, Field

from lmi_core.calls.access import Access
from lmi_core.calls.answer import json_answer
from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.request import GenerationRequest
from lmi_core.handler import Answer, AnswerForm, Call, Generation, Handler, Route
from lmi_core.payloads.payload import MAX_VALUE_LENGTH
from lmi_core.payloads.tolerant_payload import TolerantPayload, take_known
from lmi_core.served_model import ServedModel, ServedModels
from lmi_core.tolerance import names_of
from lmi_handlers.base.statuses import Statuses
from lmi_handlers.fields.openai_tolerance import take_fields, take_own, with_own
from lmi_handlers.fields.request_headers import TARGET_MODEL_HEADER
from lmi_handlers.fields.vocabulary import refuse_hidden_sequences
from lmi_handlers.happy_vllm.answers import ANSWER, ERRORS, STREAM, AbortedRequest
from lmi_handlers.happy_vllm.formatters import HappyVllmFormatter, HappyVllmStreamFormatter
from lmi_handlers.happy_vllm.payload import HappyVllmPayload
from lmi_handlers.happy_vllm.tools import ROUTES as TOOL_ROUTES

STATUSES = Statuses(invalid=422)
ID_PREFIXES = ("chatcmpl-", "cmpl-")  # precede the request's id in the `id` of OpenAI's answers


class AbortPayload(TolerantPayload):
    model_config = ConfigDict(json_schema_extra={"examples": [{"request_id": "the id of the request to abort"}]})

    request_id: Annotated[str, Field(min_length=1)] = Field(
        description="The `x-request-id` of a running request, or the `id` of its answer."
    )


async def abort_request(call: Call, dispatcher: ServedModels) -> Answer:
    """Abort a request of any dialect; its answer ends with the text so far and the finish reason `abort`.

    With API keys, it must have the same key, because clients' ids can be guessed.
    """
    models = list(dispatcher.all_models())
    strict = any(model.options.strict_parameters for model in models)
    payload, ignored = take_known(call.json_object(), AbortPayload, strict)
    for model in models:
        model.ignored.report(ignored, lambda: names_of([AbortPayload]))
    given = payload.request_id
    for request_id in (given, *(given.removeprefix(each) for each in ID_PREFIXES if given.startswith(each))):
        aborted = [model.running.abort(request_id, call.key) for model in models]
        if any(aborted):
            body = orjson.dumps({"request_id": given, "aborted": True})
            return Answer(200, "application/json", body, ignored)
    return _detail(404, f"no request with the id `{given[:MAX_VALUE_LENGTH]}` is running")


def _detail(status: int, message: str) -> Answer:
    return json_answer({"detail": message}, status)


class HappyVllmHandler(Handler):
    name: ClassVar[str] = "happy_vllm"
    summary: ClassVar[str] = "happy_vllm's API"
    errors: ClassVar[tuple[AnswerForm, ...]] = ERRORS
    routes: ClassVar[tuple[Route, ...]] = (
        Route("/v1/generate", summary="Generate text", payloads=(HappyVllmPayload,), answers=ANSWER),
        Route(
            "/v1/generate_stream",
            summary="Generate text, step by step",
            payloads=(HappyVllmPayload,),
            answers=STREAM,
        ),
        Route(
            "/v1/abort_request",
            "POST",
            abort_request,
            "Abort a running request",
            (AbortPayload,),
            access=Access.CLIENTS,
            answers=(AnswerForm(AbortedRequest),),
        ),
        *TOOL_ROUTES,
    )

    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        return headers.get(TARGET_MODEL_HEADER)

    def model_name_in_body(self, call: Call) -> str | None:
        name = call.json_object().get("model")
        return name if isinstance(name, str) else None

    def parse(self, call: Call, model: ServedModel) -> Generation:
        given, own = take_own(call.json_object(), model, HappyVllmPayload)
        payload, ignored = take_fields(given, HappyVllmPayload, model.options.strict_parameters)
        parameters, names = payload.translated()
        streams = call.path.endswith("_stream")
        if streams:
            refuse_hidden_sequences(parameters, names)
        request = GenerationRequest(payload.prompt, parameters, names=names, fits_context=True)
        formatter = (HappyVllmStreamFormatter if streams else HappyVllmFormatter)(
            count=payload.n,
            prompt=payload.prompt_in_response,
            logprobs="logprobs" in parameters,
            prompt_logprobs="prompt_logprobs" in parameters,
        )
        return with_own(Generation((request,), formatter, ignored=ignored), own)

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        return _detail(STATUSES.of(error), error.message)
