"""Conversion of a chat's messages to a prompt with the tokenizer's chat template."""

from collections.abc import Mapping
from typing import Any

from djl_python.chat_completions.chat_properties import ChatProperties

__all__ = ["apply_chat_template", "is_chat_completions_request", "parse_chat_completions_request"]

# From LMI's names of chat formatters, whole and streamed, to the formatters that they are variants of.
WHOLE, STREAM = "json_chat", "jsonlines_chat"
CHAT_FORMATTERS: Mapping[str, str] = {WHOLE: "json", STREAM: "jsonlines"}


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
