"""Requests and answers of happy_vllm's text endpoints."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.payloads.json_list import encoded_items, object_with_lists
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_core.served_model import ServedModel

SEPARATORS = [".", "!", "?", "|", " .", " !", " ?", " |"]
MAX_SEPARATORS = 256
MAX_SEPARATOR_LENGTH = 128  # characters
STEP = 1000  # tokens


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
        written.append(encoded_items([chunk for chunk in some if chunk]))
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
