"""Helpers for messages of a scripted model in Anthropic's dialect."""

from typing import Any

import orjson

from tests.conftest import Answer, RunningServer

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
TEXT = "Deep Learning is a really cool field."
WORDS = ["Deep", " Learning", " is", " a", " really", " cool", " field."]
MESSAGES = [{"role": "user", "content": "Hi"}]
WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
# Shows all that the chat template gets.
SHOWN = 'option.chat_template={"messages": {{ messages | tojson }}, "tools": {{ tools | tojson }} }\n'


async def ask(server: RunningServer, path: str = PATH, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
    body = {"model": "model", "max_tokens": 64, "messages": MESSAGES} | fields
    return await server.post(path, {name: value for name, value in body.items() if value is not ...}, headers=headers)


async def message(server: RunningServer, **fields: Any) -> dict[str, Any]:
    answer = await ask(server, **fields)
    assert (answer.status, answer.content_type) == (200, "application/json"), answer.body
    found: dict[str, Any] = answer.json()
    return found


async def refusal(server: RunningServer, **fields: Any) -> str:
    """Return what is told of a request that reaches no engine."""
    before = len(server.scripted.history)
    answer = await ask(server, **fields)
    assert answer.status == 400, answer.body
    assert len(server.scripted.history) == before
    content = answer.json()
    assert (content["type"], content["error"]["type"]) == ("error", "invalid_request_error")
    return str(content["error"]["message"])


async def events(server: RunningServer, **fields: Any) -> list[dict[str, Any]]:
    """Return a stream's events, asserting that each has its type as its name."""
    answer = await ask(server, stream=True, **fields)
    assert (answer.status, answer.content_type) == (200, "text/event-stream"), answer.body
    return read_events(answer.body)


def read_events(body: bytes) -> list[dict[str, Any]]:
    *written, nothing = body.split(b"\n\n")
    assert nothing == b""
    found = []
    for event in written:
        name, data = event.split(b"\n")
        content = orjson.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + content["type"].encode()
        found.append(content)
    return found


def rendered(server: RunningServer, name: str = "messages") -> list[dict[str, Any]]:
    """Return the messages, or the tools, that the template SHOWN got for the latest request."""
    found: list[dict[str, Any]] = orjson.loads(server.scripted.history[-1].prompt)[name]
    return found
