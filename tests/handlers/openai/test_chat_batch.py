"""vLLM's batches of chats over a real socket."""

from typing import Any

import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve
from tests.handlers.openai.chats import EMPTY_MESSAGE

CHATS = [[{"role": "user", "content": text}] for text in ("Hi", "Hey you")]


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + "option.reasoning_parser=qwen3\n"}))


async def ask(server: RunningServer, messages: Any = CHATS, **fields: Any) -> Answer:
    return await server.post("/v1/chat/completions/batch", {"messages": messages} | fields)


async def test_a_choice_for_each_chat(server: RunningServer) -> None:
    server.scripted.enqueue(Script("<think> Hm. </think> One."), Script("Two words"))
    answer = (await ask(server, return_token_ids=True, max_tokens=8)).json()
    assert [request.prompt for request in server.scripted.history] == [
        "user: Hi\nassistant:",
        "user: Hey you\nassistant:",
    ]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    thought, plain = [choice["message"] for choice in answer["choices"]]
    assert (thought["content"], thought["reasoning"]) == ("One.", "Hm.")
    assert plain == EMPTY_MESSAGE | {"role": "assistant", "content": "Two words"}
    assert [len(choice["token_ids"]) for choice in answer["choices"]] == [4, 2]
    assert (answer["object"], answer["prompt_token_ids"]) == ("chat.completion", None)
    assert answer["usage"]["completion_tokens"] == 6


@pytest.mark.parametrize(
    ("messages", "fields", "message"),
    [
        ([], {}, "`messages` must be a list of chats, each a list of messages. Given: []"),
        (CHATS[0], {}, "`messages` must be a list of chats, each a list of messages. Given: "),
        ([[]], {}, "`messages` must "),
        (CHATS, {"stream": True}, "`stream` cannot be used in batches of chats. Given: True"),
        (CHATS, {"n": 2}, "`n` must be 1 in batches of chats. Given: 2"),
    ],
)
async def test_wrong_requests(server: RunningServer, messages: Any, fields: dict[str, Any], message: str) -> None:
    answer = await ask(server, messages, **fields)
    assert answer.status == 400
    assert answer.json()["error"]["message"].startswith(message)
    assert server.scripted.history == []
