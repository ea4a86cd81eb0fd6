"""The generation of `/api/chat`, and of prompts with the chat template."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from lmi_core.errors import InvalidPayload
from lmi_core.handler import Generation
from lmi_core.payloads.payload import check_payload
from lmi_core.serving.capabilities import takes_tools
from lmi_handlers.chat.generation import ChatForm, chat_generation
from lmi_handlers.chat.reasoning import SWITCHES
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.ollama.asked import Asked
from lmi_handlers.ollama.payload import OllamaChat, OllamaMessage


class OllamaChatRequest(ChatRequest):
    """A chat in which each message has a separate list of images before its text."""

    image_member: ClassVar[str] = ""

    def part_path(self, message: int, part: int) -> str:
        return f"messages.{message}.images.{part}"


def next_message(payload: OllamaChat, asked: Asked) -> Generation:
    """Return the generation of a chat's next message. Raise InvalidPayload if the model does not support the chat."""
    if payload.tools and not takes_tools(asked.model):
        raise InvalidPayload(
            f'"{asked.name}" does not support tools: its chat template has no place for `tools`, or does not show how '
            "the model writes calls (option.tool_call_parser)"
        )
    tools = [tool.for_template for tool in payload.tools or ()]
    return templated(payload.messages or [], asked, OllamaChatRequest, tools)


def templated(
    messages: Sequence[OllamaMessage],
    asked: Asked,
    form: type[OllamaChatRequest],
    tools: Sequence[Mapping[str, Any]] = (),
    inputs: str = "messages",
) -> Generation:
    """Return the generation of messages rendered by the chat template; `inputs` is the client's name of the prompt.

    Raise InvalidPayload if the template refuses them.
    """
    parameters, names = asked.parameters()
    last = messages[-1]
    fields: dict[str, Any] = {
        "messages": [_message(message) for message in messages],
        "stream": asked.payload.stream is not False,
        "logprobs": bool(asked.payload.logprobs),
        "guided_json": asked.payload.schema_of_format,
        "include_reasoning": asked.payload.think is not False,
        "continue_final_message": last.role == "assistant" and bool(last.content) and not last.tool_calls,
        **_thinking(asked),
    }
    if tools:
        fields["tools"] = list(tools)
    generation = chat_generation(check_payload(fields, form), asked.call, asked.model, ChatForm(asked.formatter))
    (request,) = generation.requests
    kept = {name: value for name, value in request.parameters.items() if name not in ("temperature", "do_sample")}
    request = replace(
        request,
        parameters=kept | parameters,
        names={**request.names, **names, "inputs": inputs},
        fits_context=True,
    )
    return replace(generation, requests=(request,))


def _thinking(asked: Asked) -> dict[str, Any]:
    """Return the chat template's fields for thinking: as in Ollama, models that can think do so by default."""
    if asked.model.options.reasoning_format is None:
        return {}
    think = True if asked.payload.think is None else asked.payload.think
    effort = {} if isinstance(think, bool) else {"reasoning_effort": think}
    return {"chat_template_kwargs": dict.fromkeys(SWITCHES, bool(think)), **effort}


def _message(message: OllamaMessage) -> dict[str, Any]:
    """Return a message in OpenAI's form, with the names that chat templates use."""
    images = [{"type": "image_url", "image_url": {"url": image}} for image in message.images or ()]
    content: Any = message.content or ""
    written: dict[str, Any] = {**(message.model_extra or {}), "role": message.role}
    written["content"] = [*images, {"type": "text", "text": content}] if images else content
    if message.thinking:
        written |= {"reasoning_content": message.thinking, "thinking": message.thinking}
    if message.tool_calls:
        written["tool_calls"] = [call.model_dump() for call in message.tool_calls]
    if message.tool_name is not None:
        written["name"] = message.tool_name
    return written
