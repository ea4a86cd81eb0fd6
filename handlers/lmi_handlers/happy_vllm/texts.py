"""Requests and answers of happy_vllm's text endpoints."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_core.served_model import ServedModel

SEPARATORS = [".", "!", "?", "|", " .", " !", " ?", " |"]


class ToolPayload(TolerantPayload):
    model: str | None = Field(None, description="The name of the model; required if several are served.")


class SplitPayload(ToolPayload):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "Hey, how are you ? I am fine.", "num_tokens_in_chunk": 4}]}
    )

    text: str = Field(description="The text to split.")
    num_tokens_in_chunk: int = Field(200, ge=1, description="The minimum number of tokens in a chunk.")
    separators: list[Annotated[str, Field(min_length=1)]] = Field(
        SEPARATORS, description="The separators with which a chunk ends."
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


def split(payload: SplitPayload, tokenizer: Tokenizer) -> list[str]:
    """Return chunks of at least `num_tokens_in_chunk` tokens, each but the last up to the next separator."""
    return list(_chunks(payload, tokenizer))


def _chunks(payload: SplitPayload, tokenizer: Tokenizer) -> Iterator[str]:
    detokenizer = tokenizer.detokenizer([])
    chunk, count = "", 0
    unwritten: list[int] = []  # ids without a text yet: the part of a character, or what looks like one
    for token_id in tokenizer.encode(payload.text, add_special_tokens=False):
        text = detokenizer.step(token_id) or _special_text(token_id, tokenizer)
        if text:
            unwritten.clear()
        else:
            unwritten.append(token_id)
        chunk += text
        count += 1
        if count >= payload.num_tokens_in_chunk and chunk.endswith(tuple(payload.separators)):
            yield chunk
            chunk, count = "", 0
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
