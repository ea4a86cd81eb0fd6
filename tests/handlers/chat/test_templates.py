"""Chat templates that requests bring."""

from typing import Any

import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import ModelDirectory, RunningServer, Serve
from tests.handlers.openai.chats import MESSAGES, chat, serve_with

TRUSTING = "option.trust_request_chat_template=true\n"
CALLING = "{% for tool in tools %}{{ tool.function.name }} {% endfor %}<tool_call>"
TOOLS = [{"type": "function", "function": {"name": "clock"}}]


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve_with(serve, model_dir, TRUSTING + "option.chat_template=own {{ messages | length }}\n")


async def test_template_of_the_request(server: RunningServer) -> None:
    given: dict[str, Any] = {
        "chat_template": "{{ messages[1].content }}{{ mark }}",
        "chat_template_kwargs": {"mark": "!"},
    }
    assert (await chat(server, **given)).status == 200
    assert server.scripted.history[-1].prompt == "Hi!"
    assert (await server.post("/invocations", {"messages": MESSAGES, **given})).status == 200
    assert server.scripted.history[-1].prompt == "Hi!"
    await chat(server, chat_template=None)
    assert server.scripted.history[-1].prompt == "own 2"


async def test_calls_are_found_as_the_requests_template_has_them(server: RunningServer) -> None:
    server.scripted.enqueue(Script('<tool_call>{"name": "clock", "arguments": {}}</tool_call>'))
    (choice,) = (await chat(server, chat_template=CALLING, tools=TOOLS)).json()["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "clock"
    assert server.scripted.history[-1].prompt == "clock <tool_call>"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "{% for %}",
            "`chat_template` cannot be used for these messages: Expected an expression, got 'end of statement",
        ),
        ("{{ 1 / 0 }}", "`chat_template` cannot be used for these messages: division by zero"),
        ("{{ nobody.name }}", "`chat_template` cannot be used for these messages: 'nobody' is undefined"),
        (
            "{{ ''.__class__.__mro__ }}",
            "`chat_template` cannot be used for these messages: access to attribute '__class_",
        ),
        ("{% set _ = messages.clear() %}", "`chat_template` cannot be used for these messages: "),
        ("{{ range(1000000) }}", "`chat_template` cannot be used for these messages: Range too big"),
        ("", "`chat_template` must have at least 1 character"),
    ],
)
async def test_template_that_fails(server: RunningServer, template: str, message: str) -> None:
    answer = await chat(server, chat_template=template)
    error = answer.json()["error"]
    assert (answer.status, error["param"]) == (400, "chat_template")
    assert error["message"].startswith(message)


async def test_without_the_option_requests_bring_none(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "")
    answer = await chat(server, chat_template="{{ 1 }}")
    assert (answer.status, answer.json()["error"]["param"]) == (400, "chat_template")
    assert "option.trust_request_chat_template=true" in answer.json()["error"]["message"]
    assert server.scripted.history == []
