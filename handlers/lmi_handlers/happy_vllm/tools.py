"""Routes of happy_vllm without generation: information, health and tokenizer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

from lmi_core.calls.access import Access
from lmi_core.calls.answer import json_answer
from lmi_core.errors import LmiError
from lmi_core.handler import Answer, AnswerForm, Call, Route
from lmi_core.host.beside_loop import read_beside, read_in_steps
from lmi_core.payloads.payload import check_payload
from lmi_core.payloads.tolerant_payload import take_known
from lmi_core.route import inquiry, reading
from lmi_core.served_model import ManagedModel, ServedModels
from lmi_core.tolerance import names_of
from lmi_handlers.answers.openai import DetokenizedText, TokenizedText
from lmi_handlers.base.admission import described_model, generating_model
from lmi_handlers.base.tokenizing import TOKENIZE_PAYLOADS, DetokenizeRequest, decoded, tokenize
from lmi_handlers.happy_vllm.answers import HappyInfo, Liveness, Readiness, SplitChunks, TextMetadata
from lmi_handlers.happy_vllm.texts import MetadataPayload, SplitPayload, ToolPayload, metadata, split

P = TypeVar("P", bound=ToolPayload)


async def info(call: Call, dispatcher: ServedModels) -> Answer:
    model = described_model(call, dispatcher)
    return json_answer(
        {
            "application": "lmi-handlers",
            "version": version("lmi-handlers"),
            "vllm_version": _version("vllm"),
            "model_name": model.name,
            "truncation_side": model.backend.tokenizer.truncation_side,
            "max_length": model.backend.max_length,
        }
    )


async def liveness(call: Call, dispatcher: ServedModels) -> Answer:
    return json_answer({"alive": "ok"})


async def readiness(call: Call, dispatcher: ServedModels) -> Answer:
    try:
        await dispatcher.health()
    except LmiError:
        return json_answer({"ready": "ko"}, 503)
    return json_answer({"ready": "ok"})


async def decode(call: Call, dispatcher: ServedModels) -> Answer:
    return await decoded(call, dispatcher, skip_special_tokens=True)


async def split_text(call: Call, dispatcher: ServedModels) -> Answer:
    async with _asked(call, dispatcher, SplitPayload) as (payload, model, ignored):
        steps = partial(split, payload, model.backend.tokenizer)
        return Answer(200, "application/json", await read_in_steps(len(call.body), steps), ignored)


async def metadata_text(call: Call, dispatcher: ServedModels) -> Answer:
    async with _asked(call, dispatcher, MetadataPayload) as (payload, model, ignored):
        return json_answer(await read_beside(len(call.body), partial(metadata, payload, model)), ignored=ignored)


@asynccontextmanager
async def _asked(
    call: Call, dispatcher: ServedModels, payload_type: type[P]
) -> AsyncIterator[tuple[P, ManagedModel, tuple[str, ...]]]:
    """Admit a call and yield its payload, its model, and the names of ignored fields.

    Raise InvalidPayload if a field is invalid.
    """
    given = call.json_object()
    payload, ignored = await read_beside(len(call.body), partial(take_known, given, payload_type, strict=False))
    async with generating_model(call, dispatcher, payload.model) as model:
        if ignored and model.options.strict_parameters:
            check_payload(given, payload_type)
        model.ignored.report(ignored, lambda: names_of([payload_type]))
        yield payload, model, ignored


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


ROUTES = (
    Route("/v1/info", "GET", info, "Information about the served model", answers=(AnswerForm(HappyInfo),)),
    reading("/liveness", liveness, "Whether the server is running", AnswerForm(Liveness), access=Access.EVERYBODY),
    reading(
        "/readiness",
        readiness,
        "Whether every model is ready",
        AnswerForm(Readiness, statuses=(200, 503)),
        access=Access.EVERYBODY,
    ),
    inquiry("/v2/tokenizer", tokenize, "Tokenize a text", TOKENIZE_PAYLOADS, AnswerForm(TokenizedText)),
    inquiry("/v2/decode", decode, "Detokenize token ids", (DetokenizeRequest,), AnswerForm(DetokenizedText)),
    inquiry("/v1/split_text", split_text, "Split a text at separators", (SplitPayload,), AnswerForm(SplitChunks)),
    inquiry("/v1/metadata_text", metadata_text, "Count a text's tokens", (MetadataPayload,), AnswerForm(TextMetadata)),
)
