"""Routes of happy_vllm without generation: information, health and tokenizer."""

from collections.abc import Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from lmi_core.calls.access import Access
from lmi_core.calls.answer import json_answer
from lmi_core.errors import LmiError
from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.handler import Answer, AnswerForm, Call, Route, inquiry, reading
from lmi_core.host.off_loop import read_in_steps, run_off_loop
from lmi_core.payloads.json_list import encode_items, object_with_lists
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_core.served_model import ServedModel, ServedModels
from lmi_handlers.answers.openai import DetokenizedText, TokenizedText
from lmi_handlers.base.tokenizing import (
    TOKENIZE_PAYLOADS,
    DetokenizeRequest,
    described_model,
    detokenize,
    read_call,
    tokenize,
)
from lmi_handlers.happy_vllm.answers import HappyInfo, Liveness, Readiness, SplitChunks, TextMetadata

SEPARATORS = [".", "!", "?", "|", " .", " !", " ?", " |"]
MAX_SEPARATORS = 256
MAX_SEPARATOR_LENGTH = 128  # characters
STEP = 1000  # tokens
DECODE = partial(detokenize, skip_special_tokens=True)


class ToolPayload(TolerantPayload):
    model: str | None = Field(None, description="The name of the model; required if several are served.")


class SplitPayload(ToolPayload):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "Hey, how are you ? I am fine.", "num_tokens_in_chunk": 4}]}
    )

    text: str = Field(description="The text to split.")
    num_tokens_in_chunk: int = Field(200, ge=1, description="The minimum number of tokens in a chunk.")
    separators: list[Annotated[str, Field(min_length=1, max_length=MAX_SEPARATOR_LENGTH)]] = Field(
        SEPARATORS,
        max_length=MAX_SEPARATORS,
        description=f"The separators that a chunk can end with: at most {MAX_SEPARATORS}, each of at most "
        f"{MAX_SEPARATOR_LENGTH} characters.",
    )


class MetadataPayload(ToolPayload):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "Hey, how are you ?", "truncation_side": "left", "max_length": 2}]}
    )

    text: str = Field(description="The text to count the tokens of.")
    truncation_side: Literal["left", "right"] | None = Field(
        None, description="Whether to add special tokens. Default: the tokenizer's choice."
    )
    max_length: int | None = Field(
        None, ge=0, description="The maximum number of tokens before the text is truncated. Default: the model's."
    )


def split(payload: SplitPayload, tokenizer: Tokenizer) -> Iterator[bytes | None]:
    """Write, in steps, chunks of at least `num_tokens_in_chunk` tokens, extended to the next separator."""
    written, chunks = list[bytes](), _chunks(payload, tokenizer)
    while some := list(islice(chunks, STEP)):
        written.append(encode_items([chunk for chunk in some if chunk]))
        yield None
    yield object_with_lists({}, {"split_text": written})


def _chunks(payload: SplitPayload, tokenizer: Tokenizer) -> Iterator[str]:
    """Yield the chunk that each token completes, or "", and finally the rest."""
    separators: dict[str, tuple[str, ...]] = {}  # by their last character
    for separator in payload.separators:
        separators[separator[-1]] = (*separators.get(separator[-1], ()), separator)
    detokenizer = tokenizer.detokenizer([])
    chunk, count = "", 0
    unwritten: list[int] = []  # ids that have no text yet: part of a character, or an apparent part
    for token_id in tokenizer.encode(payload.text, add_special_tokens=False):
        text = detokenizer.step(token_id) or _special_text(token_id, tokenizer)
        if text:
            unwritten.clear()
        else:
            unwritten.append(token_id)
        chunk += text
        count += 1
        if count >= payload.num_tokens_in_chunk and chunk.endswith(separators.get(chunk[-1:], ())):
            yield chunk
            chunk, count = "", 0
        else:
            yield ""
    if chunk or unwritten:
        yield chunk + tokenizer.decode(unwritten)


def _special_text(token_id: int, tokenizer: Tokenizer) -> str:
    """Return the text of a special token in the text to split, such as `<s>`; "" for other tokens."""
    return "" if tokenizer.decode([token_id]) else tokenizer.decode([token_id], skip_special_tokens=False)


def metadata(payload: MetadataPayload, model: ServedModel) -> dict[str, Any]:
    """Return the number of tokens, and the text beyond `max_length` that truncation would remove."""
    tokenizer = model.backend.tokenizer
    ids = tokenizer.encode(payload.text, add_special_tokens=False)
    longest = model.backend.max_length if payload.max_length is None else payload.max_length
    side = payload.truncation_side or tokenizer.truncation_side
    cut_off = ids[longest:] if side == "right" else ids[: max(len(ids) - longest, 0)]
    return {"tokens_nb": len(ids), "truncated_text": tokenizer.decode(cut_off, skip_special_tokens=False)}


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


async def split_text(call: Call, dispatcher: ServedModels) -> Answer:
    payload, model, ignored = await read_call(call, dispatcher, SplitPayload)
    steps = partial(split, payload, model.backend.tokenizer)
    return Answer(200, "application/json", await read_in_steps(len(call.body), steps), ignored)


async def metadata_text(call: Call, dispatcher: ServedModels) -> Answer:
    payload, model, ignored = await read_call(call, dispatcher, MetadataPayload)
    return json_answer(await run_off_loop(len(call.body), partial(metadata, payload, model)), ignored=ignored)


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
    inquiry("/v2/decode", DECODE, "Detokenize token ids", (DetokenizeRequest,), AnswerForm(DetokenizedText)),
    inquiry("/v1/split_text", split_text, "Split a text at separators", (SplitPayload,), AnswerForm(SplitChunks)),
    inquiry("/v1/metadata_text", metadata_text, "Count a text's tokens", (MetadataPayload,), AnswerForm(TextMetadata)),
)
