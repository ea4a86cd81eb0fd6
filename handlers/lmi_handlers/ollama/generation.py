"""The generations of Ollama's chats and prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from lmi_core.calls.answer import json_answer
from lmi_core.errors import InvalidPayload
from lmi_core.formatter import ChatAnswer, OutputFormatter
from lmi_core.generation.request import GenerationRequest
from lmi_core.handler import Answer, Call, Generation
from lmi_core.parsing.reasoning.parser import AnswerContext
from lmi_core.parsing.reasoning.reader import Reasoning
from lmi_core.payloads.payload import check_payload
from lmi_core.served_model import ServedModel
from lmi_core.serving.capabilities import chat_template, takes_tools
from lmi_core.texts.fill_in_the_middle import middle_prompt
from lmi_handlers.chat.generation import UP_TO_THE_CONTEXT, ChatForm, chat_generation
from lmi_handlers.chat.reasoning import SWITCHES
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.ollama.formatters import Members, OllamaStreamFormatter, OllamaWholeFormatter, Stopwatch, format_time
from lmi_handlers.ollama.payload import OllamaChat, OllamaGenerate, OllamaMessage, OllamaOptions, OllamaRequest


@dataclass(frozen=True, slots=True)
class OllamaCall:
    """A call to a model by the client's name, with the settings of its answer."""

    payload: OllamaRequest
    name: str
    call: Call
    model: ServedModel
    stopwatch: Stopwatch
    members: Members

    def formatter(self, answer: ChatAnswer) -> OutputFormatter:
        formatter = OllamaWholeFormatter if self.payload.stream is False else OllamaStreamFormatter
        return formatter(replace(answer, model=self.name), self.stopwatch, self.members)

    def parameters(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return LMI's parameters of `options`, `format` and `logprobs`, and the client's name of each."""
        parameters, names = (self.payload.options or OllamaOptions()).parameters()
        names |= {"guided_json": "format", "logprobs": "top_logprobs"}
        if (schema := self.payload.schema_of_format) is not None:
            parameters["guided_json"] = schema
        if self.payload.logprobs and self.payload.top_logprobs:
            parameters["logprobs"] = self.payload.top_logprobs
        return parameters, names

    def answer_load(self) -> Answer:
        """Return the answer to a request that loads or unloads a model, which has no effect: it stays loaded."""
        reason = "unload" if self.payload.unloads else "load"
        head = {"model": self.name, "created_at": format_time()}
        return json_answer(head | self.members.of({}) | {"done": True, "done_reason": reason})


class OllamaChatRequest(ChatRequest):
    """A chat in which each message has a separate list of images before its text."""

    image_member: ClassVar[str] = ""

    def part_path(self, message: int, part: int) -> str:
        return f"messages.{message}.images.{part}"


def next_message(payload: OllamaChat, asked: OllamaCall) -> Generation:
    """Return the generation of a chat's next message. Raise InvalidPayload if the model does not support the chat."""
    if payload.tools and not takes_tools(asked.model):
        raise InvalidPayload(
            f'"{asked.name}" does not support tools: its chat template has no place for `tools`, or does not show how '
            "the model writes calls (option.tool_call_parser)"
        )
    tools = [tool.function.for_template for tool in payload.tools or ()]
    return template_generation(payload.messages or [], asked, OllamaChatRequest, tools)


def template_generation(
    messages: Sequence[OllamaMessage],
    asked: OllamaCall,
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
    }
    if asked.model.options.reasoning_format is not None:  # as in Ollama, models that can think do so by default
        think = True if asked.payload.think is None else asked.payload.think
        fields["chat_template_kwargs"] = dict.fromkeys(SWITCHES, bool(think))
        if not isinstance(think, bool):
            fields["reasoning_effort"] = think
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


class OllamaPromptRequest(OllamaChatRequest):
    """The chat of one prompt, with the images of the request."""

    def part_path(self, message: int, part: int) -> str:
        return f"images.{part}"


def answer_to_prompt(payload: OllamaGenerate, prompt: str, asked: OllamaCall) -> Generation:
    """Return the generation that answers a prompt.

    Raise InvalidPayload if the model does not support the request.
    """
    if payload.raw or payload.suffix:
        field = "raw" if payload.raw else "suffix"
        for other in ("system", "images", *(("suffix",) if payload.raw else ())):
            if getattr(payload, other):
                raise InvalidPayload(
                    f"`{field}` and `{other}` cannot be used together: the prompt goes to the model as it is, without "
                    "its chat template"
                )
    if payload.suffix:
        middle = middle_prompt(asked.model.backend.tokenizer, prompt, payload.suffix, add_special_tokens=True)
        obeyed = asked.model.backend.obeys("stop_token_ids")
        return _raw_generation(middle.prompt_ids, asked, {"stop_token_ids": middle.stop_token_ids} if obeyed else {})
    if payload.raw or (chat_template(asked.model) is None and not payload.system and not payload.images):
        return _raw_generation(prompt, asked)
    system = [OllamaMessage(role="system", content=payload.system)] if payload.system else []
    user = OllamaMessage(role="user", content=prompt, images=payload.images)
    return template_generation([*system, user], asked, OllamaPromptRequest, inputs="prompt")


def _raw_generation(prompt: str | list[int], asked: OllamaCall, further: Mapping[str, Any] | None = None) -> Generation:
    parameters, names = asked.parameters()
    parameters.setdefault("max_new_tokens", UP_TO_THE_CONTEXT)
    request = GenerationRequest(
        prompt, parameters | dict(further or {}), names={**names, "inputs": "prompt"}, fits_context=True
    )
    tokenizer, reasoning_format = asked.model.backend.tokenizer, asked.model.options.reasoning_format
    reasoning = None  # without a chat template, a prompt cannot request it, but the answer may contain it
    if asked.payload.think and reasoning_format is not None and isinstance(prompt, str):
        reasoning = Reasoning(reasoning_format, tokenizer, AnswerContext(prompt))
    answer = ChatAnswer(
        response_id=asked.call.request_id,
        model=asked.name,
        tokenizer=tokenizer,
        log_probs=bool(asked.payload.logprobs),
        reasoning=reasoning,
    )
    return Generation((request,), asked.formatter(answer))
