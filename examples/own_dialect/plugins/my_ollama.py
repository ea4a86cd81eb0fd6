"""A dialect of one's own: Ollama's `POST /api/chat` and `GET /api/tags`, under `/my-ollama`."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from lmi import (
    STATUSES,
    Answer,
    AnswerReader,
    Call,
    CallArguments,
    CallBegun,
    ChatAnswer,
    ChatFormatter,
    Content,
    Generation,
    GenerationOutput,
    Handler,
    LmiError,
    ModelNotFound,
    OutputFormatter,
    ReasoningText,
    Route,
    ServedModel,
    ServedModels,
    TolerantPayload,
    answer_reader,
    chat_request,
    hookimpl,
    take_known,
)

PARAMETERS = {"num_predict": "max_new_tokens", "temperature": "temperature", "seed": "seed", "stop": "stop_sequences"}


class Options(TolerantPayload):
    """The sampling parameters; their bounds are the backend's."""

    num_predict: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: list[str] | None = None


class ChatPayload(TolerantPayload):
    """The body of `POST /api/chat`."""

    model: str
    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] = Field(default_factory=list)
    options: dict[str, Any] = Field(default_factory=dict)
    stream: bool = True
    keep_alive: Any = None  # the model stays loaded as long as the server runs


class Lines(ChatFormatter):
    """A stream: a line of JSON for each step that brings text, and a last one with the counts."""

    name = "my_ollama_stream"
    one_sequence = True
    content_type = "application/x-ndjson"
    text_path = ("message", "content")

    def __init__(self, answer: ChatAnswer) -> None:
        super().__init__(answer)
        self.reader: AnswerReader = answer_reader(answer)
        self.calls: dict[int, dict[str, Any]] = {}  # they are sent whole, in the last line

    def format(self, output: GenerationOutput) -> bytes | list[bytes]:
        message = self.message(output)
        lines = [self.line(message)] if message["content"] or "thinking" in message else []
        return [*lines, self.line(self.calls_message(), output)] if output.is_last else lines

    def error(self, error: LmiError) -> bytes:
        return json.dumps({"error": error.message}).encode() + b"\n"

    def message(self, output: GenerationOutput) -> dict[str, Any]:
        """Return what the latest step adds to the message."""
        message = {"role": "assistant", "content": ""}
        for piece in self.reader.read_step(output.step):
            match piece:
                case Content(text):
                    message["content"] += text
                case ReasoningText(text):
                    message["thinking"] = message.get("thinking", "") + text
                case CallBegun(index, name):
                    self.calls[index] = {"name": name, "arguments": ""}
                case CallArguments(index, text):
                    self.calls[index]["arguments"] += text
        return message

    def calls_message(self) -> dict[str, Any]:
        """Return the message with the tool calls, which is otherwise empty."""
        calls = [{"function": call | {"arguments": json.loads(call["arguments"])}} for call in self.calls.values()]
        return {"role": "assistant", "content": ""} | ({"tool_calls": calls} if calls else {})

    def line(self, message: Mapping[str, Any], ended: GenerationOutput | None = None) -> bytes:
        """Return a line; one that ends the answer says why, and what was counted."""
        line: dict[str, Any] = {"model": self.chat.model, "created_at": datetime.now(UTC).isoformat()}
        line |= {"message": message, "done": ended is not None}
        if ended is not None:
            line["done_reason"] = "length" if ended.finish_reason == "length" else "stop"
            line["prompt_eval_count"], line["eval_count"] = ended.usage
        return json.dumps(line).encode() + b"\n"


class Whole(Lines):
    """A whole answer: one object, whose message has everything that the lines of a stream have."""

    name = "my_ollama"
    content_type = "application/json"

    def __init__(self, answer: ChatAnswer) -> None:
        super().__init__(answer)
        self.collected: dict[str, str] = {}

    def format(self, output: GenerationOutput) -> bytes | list[bytes]:
        for member, text in self.message(output).items():
            self.collected[member] = text if member == "role" else self.collected.get(member, "") + text
        return self.line(self.calls_message() | self.collected, output) if output.finished else b""


async def tags(call: Call, models: ServedModels) -> Answer:
    """Return the models that are served, and facts about them."""
    listed = [
        {
            "model": model.name,
            "name": model.name,
            "modified_at": datetime.fromtimestamp(model.created, UTC).isoformat(),
            "details": {"family": model.runtime_name, "families": list(model.names)},
        }
        for model in models.models.values()
    ]
    return Answer(200, "application/json", json.dumps({"models": listed}).encode())


class MyOllamaHandler(Handler):
    """The dialect: two routes, the way from a body to a generation, and the form of errors."""

    name = "my_ollama"
    routes = (
        Route("/my-ollama/api/chat", summary="Answer a chat", payloads=(ChatPayload,)),
        Route("/my-ollama/api/tags", "GET", answer=tags, summary="List the models"),
    )

    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        return None

    def model_name_in_body(self, call: Call) -> str | None:
        return without_tag(str(call.json_object().get("model")))

    def parse(self, call: Call, model: ServedModel) -> Generation:
        strict = model.options.strict_parameters
        payload, ignored = take_known(call.json_object(), ChatPayload, strict)
        if without_tag(payload.model) not in model.names:
            raise ModelNotFound(f"model `{payload.model}` is not served. Served: {', '.join(model.names)}")
        options, ignored_options = take_known(payload.options, Options, strict)
        return chat_request(
            openai_messages(payload.messages),
            call,
            model,
            Lines if payload.stream else Whole,
            parameters={PARAMETERS[name]: value for name, value in options if value is not None},
            names={parameter: f"options.{name}" for name, parameter in PARAMETERS.items()},
            tools=payload.tools,
            ignored=[*ignored, *(f"options.{name}" for name in ignored_options)],
        )

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        return Answer(STATUSES.get(error.kind, 400), "application/json", json.dumps({"error": error.message}).encode())


def without_tag(name: str) -> str:
    return name.removesuffix(":latest")


def openai_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages in OpenAI's form, which has images as parts of the content."""
    return [openai_message(message) for message in messages]


def openai_message(message: Mapping[str, Any]) -> dict[str, Any]:
    images = [{"type": "image_url", "image_url": {"url": image}} for image in message.get("images") or ()]
    text = message.get("content") or ""
    kept = {name: message[name] for name in ("role", "tool_calls") if name in message}
    return {**kept, "content": [*images, {"type": "text", "text": text}] if images else text}


@hookimpl
def lmi_register_handlers(register: Callable[[type[Handler]], None]) -> None:
    register(MyOllamaHandler)
