"""Chats for `djl_python.chat_completions`: conversion of messages to a prompt, and of OpenAI's parameters to LMI's."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

# From LMI's names of chat formatters, whole and streamed, to the formatters that they are variants of.
WHOLE, STREAM = "json_chat", "jsonlines_chat"
CHAT_FORMATTERS: Mapping[str, str] = {WHOLE: "json", STREAM: "jsonlines"}


class Message(BaseModel):
    """A message of a chat, for files that make or check their own."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | list[dict[str, Any]] | None = None


class ChatProperties(BaseModel):
    """A chat's body. `model_dump(by_alias=True, exclude_none=True)` has the parameters by LMI's names."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    messages: list[dict[str, Any]]
    model: str | None = Field(None, exclude=True)
    frequency_penalty: float | None = Field(0.0, ge=-2, le=2)
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = Field(False, exclude=True)
    top_logprobs: int | None = Field(None, ge=0, le=20, serialization_alias="logprobs")
    max_tokens: int | None = Field(None, ge=1, serialization_alias="max_new_tokens")
    n: int | None = Field(1, exclude=True)
    presence_penalty: float | None = Field(0.0, ge=-2, le=2)
    seed: int | None = None
    stop: str | list[str] | None = Field(None, serialization_alias="stop_sequences")
    stream: bool | None = False
    temperature: float | None = Field(1.0, ge=0, le=2)
    top_p: float | None = 1.0
    user: str | None = Field(None, exclude=True)

    @field_validator("messages")
    @classmethod
    def _role_and_content(cls, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for message in messages:
            if not {"role", "content"} <= message.keys():
                raise ValueError(f"each message must have a `role` and a `content`. Given: {sorted(message)}")
        return messages

    @field_validator("stop")
    @classmethod
    def _stop_list(cls, stop: str | list[str] | None) -> list[str] | None:
        return [stop] if isinstance(stop, str) else stop


def is_chat_completions_request(inputs: object) -> bool:
    """Return whether a decoded body is a chat."""
    return isinstance(inputs, Mapping) and "messages" in inputs


def parse_chat_completions_request(
    input_map: dict[str, Any],
    is_rolling_batch: bool = True,
    tokenizer: Any = None,
    image_token: str | None = None,
    configs: Any = None,
    is_mistral_tokenizer: bool = False,
) -> tuple[str, dict[str, Any]]:
    """Return the messages rendered by the tokenizer's chat template, and the parameters."""
    if not (is_rolling_batch or configs is None or configs.batch_size == 1):
        raise ValueError("chats require rolling batch or batch_size=1")
    if not hasattr(tokenizer, "apply_chat_template"):
        raise AttributeError(f"the tokenizer {type(tokenizer).__name__} has no chat template")
    chat = ChatProperties(**input_map)
    parameters = chat.model_dump(by_alias=True, exclude_none=True, exclude={"messages"})
    if not chat.logprobs:
        parameters.pop("logprobs", None)
    parameters["do_sample"] = bool(chat.temperature)
    parameters["details"] = True
    parameters["output_formatter"] = STREAM if chat.stream else WHOLE
    return apply_chat_template(tokenizer, chat.messages), parameters


def apply_chat_template(tokenizer: Any, inputs: list[dict[str, Any]]) -> str:
    return str(tokenizer.apply_chat_template(inputs, tokenize=False, add_generation_prompt=True))
