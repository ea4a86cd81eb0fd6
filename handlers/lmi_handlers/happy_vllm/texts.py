"""Requests of happy_vllm's tokenizer endpoints, and the computation of their answers."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from lmi_core.calls.served_model import ServedModel
from lmi_core.chats.chat import Chat
from lmi_core.chats.chat_template import find_chat_template
from lmi_core.errors import InvalidPayload
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_core.tokenizer import Tokenizer
from lmi_handlers.chat.images import image_parts
from lmi_handlers.chat.messages import Message, template_messages

SEPARATORS = [".", "!", "?", "|", " .", " !", " ?", " |"]


class ToolPayload(TolerantPayload):
    model: str | None = Field(None, description="The model's name, where several are served.")


class TokenizePayload(ToolPayload):
    """A request to count and list tokens, of either `prompt` or `messages`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"prompt": "This is a text example"}]})

    prompt: str | None = Field(None, description="The text to tokenize.")
    messages: Annotated[list[Message], Field(min_length=1)] | None = Field(
        None, description="The conversation to tokenize, as the chat template writes it."
    )
    add_special_tokens: bool | None = Field(
        None, description="With the special tokens that the model expects around a text. Default: not for `messages`."
    )
    add_generation_prompt: bool = Field(True, description="End `messages` with what asks for the next one.")

    @model_validator(mode="after")
    def _one_text(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("one of `prompt` and `messages` is required")
        return self

    def text(self, model: ServedModel) -> str:
        """Return the prompt, or the rendered messages. Raise InvalidPayload where these cannot be rendered."""
        if self.messages is None:
            return self.prompt or ""
        tokenizer = model.backend.tokenizer
        template = find_chat_template(model.chat_template, tokenizer, with_tools=False)
        for place in image_parts(self.messages):
            raise InvalidPayload(f"`{place}` is an image, and only text is split into tokens here")
        messages = template_messages(self.messages, template, model.backend)
        arguments = {"add_generation_prompt": self.add_generation_prompt}
        return tokenizer.render_chat(Chat(messages, template_arguments=arguments), template)

    def tokenize(self, model: ServedModel) -> list[int]:
        special = self.messages is None if self.add_special_tokens is None else self.add_special_tokens
        return model.backend.tokenizer.encode(self.text(model), special)


class DecodePayload(ToolPayload):
    model_config = ConfigDict(json_schema_extra={"examples": [{"tokens": [0, 1, 2]}]})

    tokens: list[Annotated[int, Field(ge=0)]] = Field(description="The token ids.")


class SplitPayload(ToolPayload):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "Hey, how are you ? I am fine.", "num_tokens_in_chunk": 4}]}
    )

    text: str = Field(description="The text to split.")
    num_tokens_in_chunk: int = Field(200, ge=1, description="The fewest tokens in a chunk.")
    separators: list[Annotated[str, Field(min_length=1)]] = Field(SEPARATORS, description="What a chunk ends with.")


class MetadataPayload(ToolPayload):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"text": "Hey, how are you ?", "truncation_side": "left", "max_length": 2}]}
    )

    text: str = Field(description="The text to look at.")
    truncation_side: Literal["left", "right"] | None = Field(None, description="Default: the tokenizer's.")
    max_length: int | None = Field(None, ge=0, description="Tokens before it is truncated. Default: the model's.")


def split(payload: SplitPayload, tokenizer: Tokenizer) -> list[str]:
    """Return chunks of at least `num_tokens_in_chunk` tokens, each but the last up to the next separator."""
    return list(_chunks(payload, tokenizer))


def _chunks(payload: SplitPayload, tokenizer: Tokenizer) -> Iterator[str]:
    detokenizer = tokenizer.detokenizer([])
    chunk, count = "", 0
    for token_id in tokenizer.encode(payload.text, add_special_tokens=False):
        chunk += detokenizer.step(token_id)
        count += 1
        if count >= payload.num_tokens_in_chunk and chunk.endswith(tuple(payload.separators)):
            yield chunk
            chunk, count = "", 0
    if chunk:
        yield chunk


def metadata(payload: MetadataPayload, model: ServedModel) -> dict[str, Any]:
    """Return the number of tokens, and the text beyond `max_length` that truncation would remove."""
    tokenizer = model.backend.tokenizer
    ids = tokenizer.encode(payload.text, add_special_tokens=False)
    longest = model.backend.max_length if payload.max_length is None else payload.max_length
    side = payload.truncation_side or tokenizer.truncation_side
    cut_off = ids[longest:] if side == "right" else ids[: max(len(ids) - longest, 0)]
    return {"tokens_nb": len(ids), "truncated_text": tokenizer.decode(cut_off)}
