"""Helpers for responses of a scripted model."""

from collections.abc import Sequence
from typing import Any

import orjson

from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve

PATH = "/v1/responses"
TEXT = "Deep Learning is a really cool field."
WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
AS_JSON = "{{ messages | tojson }}{% for tool in tools or [] %} tool: {{ tool.function.name }}{% endfor %}"


async def serve_with(serve: Serve, model_dir: ModelDirectory, properties: str = "") -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + properties}))


async def ask(server: RunningServer, given: object = "What is it?", **fields: Any) -> Answer:
    return await server.post(PATH, {"input": given} | fields)


async def respond(server: RunningServer, given: object = "What is it?", **fields: Any) -> dict[str, Any]:
    """Return the response, which must be one."""
    answer = await ask(server, given, **fields)
    assert answer.status == 200, answer.body
    response: dict[str, Any] = answer.json()
    assert response["object"] == "response"
    return response


async def messages(server: RunningServer, given: object, **fields: Any) -> Any:
    """Return the messages that the chat template gets."""
    scripted = server.scripted
    scripted.tokenizer.template = AS_JSON
    await respond(server, given, **fields)
    return orjson.loads(scripted.history[-1].prompt)


def events(answer: Answer) -> list[dict[str, Any]]:
    """Return the events of a stream, each of which must be named and numbered."""
    assert (answer.status, answer.content_type) == (200, "text/event-stream"), answer.body
    *written, nothing = answer.body.split(b"\n\n")
    assert nothing == b""
    found = []
    for number, event in enumerate(written):
        name, data = event.split(b"\n")
        content = orjson.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + content["type"].encode()
        assert content["sequence_number"] == number
        found.append(content)
    return found


async def stream(server: RunningServer, given: object = "What is it?", **fields: Any) -> list[dict[str, Any]]:
    return events(await ask(server, given, stream=True, **fields))


def kinds(items: Sequence[dict[str, Any]]) -> list[str]:
    return [item["type"].removeprefix("response.") for item in items]


def plain(value: Any) -> Any:
    """Return JSON without what differs between two answers to one request: ids and times."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    own = ("id", "item_id", "call_id", "created_at", "completed_at")
    return {name: plain(each) for name, each in value.items() if name not in own}
