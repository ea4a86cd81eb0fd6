"""Tool calls in Ollama's form: complete, with an object of arguments."""

import logging
from collections.abc import Iterable
from typing import Any

import orjson

from lmi_core.generation.output import Token
from lmi_core.payloads.exact_json import exact_json, writable
from lmi_handlers.chat.schema import ChatStream, JsonObject

logger = logging.getLogger(__name__)


class MessageStream:
    """The state of one streamed sequence, which returns each tool call when it is complete."""

    def __init__(self, stream: ChatStream) -> None:
        self._stream = stream
        self._call: JsonObject | None = None  # an incomplete call with its arguments so far
        self._num_calls = 0

    def deltas(self, token: Token, last: bool) -> list[JsonObject]:
        deltas: list[JsonObject] = []
        for delta in self._stream.deltas(token, last):
            if "tool_calls" not in delta:
                deltas += [*self._completed(), delta]
                continue
            (part,) = delta["tool_calls"]
            if "id" in part:
                deltas += self._completed()
                self._call = {"id": part["id"], "name": part["function"]["name"], "arguments": ""}
            if self._call is not None:
                self._call["arguments"] += part["function"]["arguments"]
        return deltas + (self._completed() if last else [])

    def _completed(self) -> list[JsonObject]:
        call, self._call = self._call, None
        if call is None:
            return []
        written = _written(call["id"], self._num_calls, call["name"], call["arguments"])
        self._num_calls += 1
        return [written]


def message_with_calls(message: JsonObject) -> JsonObject:
    """Convert a whole message in OpenAI's form to Ollama's content, reasoning and calls."""
    calls = message.get("tool_calls") or ()
    written = [
        _written(call["id"], place, call["function"]["name"], call["function"]["arguments"])
        for place, call in enumerate(calls)
    ]
    content = "".join([message["content"] or "", *(each.get("content", "") for each in written)])
    kept = {name: value for name, value in message.items() if name != "tool_calls"}
    complete = _calls(written)
    return {**kept, "content": content} | ({"tool_calls": complete} if complete else {})


def _calls(deltas: Iterable[JsonObject]) -> list[Any]:
    return [call for delta in deltas for call in delta.get("tool_calls", ())]


def _written(call_id: str, index: int, name: str, arguments: str) -> JsonObject:
    """Return the delta of a call; a call with truncated arguments becomes content."""
    try:
        value = exact_json(arguments or "{}")
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict):
        function = {"index": index, "name": name, "arguments": writable(value)}
        return {"tool_calls": [{"id": call_id, "function": function}]}
    logger.info("a call of %r is returned as text: its arguments are not a JSON object", name)
    return {"content": f'{{"name": {orjson.dumps(name).decode()}, "arguments": {arguments}'}
