"""Chats for custom dialects: from messages to a generation, and from generated text to the parts of an answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lmi_core.calls.call import Call
from lmi_core.formatter import ChatAnswer, OutputFormatter
from lmi_core.handler import Generation
from lmi_core.payloads.payload import check_payload
from lmi_core.served_model import ServedModel
from lmi_handlers.chat.generation import ChatForm, chat_generation
from lmi_handlers.chat.pieces import AnswerReader
from lmi_handlers.chat.request import ChatRequest

SAMPLING = ("do_sample", "temperature")  # OpenAI's requests have their own defaults for these


def chat_request(
    messages: Sequence[Mapping[str, Any]],
    call: Call,
    model: ServedModel,
    formatter: Callable[[ChatAnswer], OutputFormatter],
    *,
    parameters: Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
    tool_choice: str | Mapping[str, Any] | None = None,
    template_arguments: Mapping[str, Any] | None = None,
    continue_final_message: bool = False,
    log_probs: bool = False,
    ignored: Sequence[str] = (),
) -> Generation:
    """Return the generation of a chat's next message, for `Handler.parse`.

    Messages, tools and the tool choice are in OpenAI's form; images are parts of messages. The model's chat template
    turns them into the prompt, with `template_arguments` as additional variables. `parameters` have LMI's names, and
    `names` maps them, and `messages`, to the client's names for error messages. Without `max_new_tokens`, the answer
    may fill the context. `ignored` are the names of fields that the dialect dropped, for a header. `formatter`, such as
    a
    ChatFormatter, receives the facts about the chat: see `answer_reader`.

    Raise InvalidPayload if the messages are invalid, or if the model's chat template does not support them.
    """
    given, names = dict(parameters or {}), dict(names or {})
    fields: dict[str, Any] = {
        "messages": [dict(message) for message in messages],
        "tools": [dict(tool) for tool in tools] or None,
        "tool_choice": tool_choice,
        "chat_template_kwargs": dict(template_arguments or {}) or None,
        "continue_final_message": continue_final_message or None,
        "logprobs": log_probs or None,
    }
    payload = check_payload({name: value for name, value in fields.items() if value is not None}, ChatRequest)
    generation = chat_generation(payload, call, model, ChatForm(formatter))
    (request,) = generation.requests
    kept = {name: value for name, value in request.parameters.items() if name not in SAMPLING}
    named = {**request.names, "inputs": names.pop("messages", "messages"), **names}
    request = replace(request, parameters=kept | given, names=named, fits_context=given.get("max_new_tokens") is None)
    return replace(generation, requests=(request,), ignored=tuple(ignored))


def answer_reader(answer: ChatAnswer) -> AnswerReader:
    """Return a reader that splits one sequence into reasoning, content and tool calls.

    `AnswerReader.read_step` returns the parts of a step.
    """
    parser = answer.tool_calls() if answer.tool_calls else None
    reasoning = answer.reasoning.new_reader() if answer.reasoning else None
    return AnswerReader(parser, reasoning, answer.include_reasoning)
