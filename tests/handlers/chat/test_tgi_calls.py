"""Streamed tool calls with `option.tgi_compat`."""

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.handlers.chat.test_tools import TAGGED, TOOLS
from tests.handlers.openai.chats import chat, events


async def test_each_delta_of_a_call_has_its_id(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = SCRIPTED + "option.tool_call_parser=hermes\noption.tgi_compat=true\n"
    server = await serve(model_dir({"serving.properties": properties}))
    server.scripted.enqueue(Script(tokens=(*TAGGED.split(" "), "")))  # the last one is the end token
    choices = [chunk["choices"][0] for chunk in events(await chat(server, tools=TOOLS, stream=True))]
    calls = [choice["delta"]["tool_calls"][0] for choice in choices if "tool_calls" in choice["delta"]]
    names = [call["function"].pop("name") for call in calls]
    assert names == ["weather"] + [None] * (len(calls) - 1)
    assert "".join(call["function"].pop("arguments") for call in calls) == '{"city":"Paris"}'
    assert calls == [{"index": 0, "id": calls[0]["id"], "type": "function", "function": {}}] * len(calls)
    assert choices[-1]["finish_reason"] == "tool_calls"
    assert choices[-1]["delta"]["tool_calls"] == [calls[-1] | {"function": {}}]
