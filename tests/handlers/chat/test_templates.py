"""Chat templates that requests bring."""

import asyncio
from typing import Any

import pytest

from lmi_core.deadlines import bounded
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.openai.chats import MESSAGES, chat, serve_with
from tests.longest_hold import longest_hold

TRUSTING = "option.trust_request_chat_template=true\n"
HELD = 0.1  # seconds of CPU time, of which the tests' own checks of answers take some
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


async def test_parts_reach_a_template_that_reads_their_members(serve: Serve, model_dir: ModelDirectory) -> None:
    template = (
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% set part = m.content[0] %}"
        "{{ part.type }} {{ part['source_lang_code'] }}: {{ part.text }}{% endif %}{% endfor %}"
    )
    files = {"serving.properties": SCRIPTED + "option.chat_template=chat.jinja\n", "chat.jinja": template}
    server = await serve(model_dir(files))
    part = {"type": "text", "text": "Hallo"}
    await chat(server, messages=[{"role": "user", "content": [part | {"source_lang_code": "de"}]}])
    assert server.scripted.history[-1].prompt == "text de: Hallo"
    await chat(server, messages=[{"role": "user", "content": [part | {"cache_control": {"type": "ephemeral"}}]}])
    assert server.scripted.history[-1].prompt == "Hallo"
    await chat(server, messages=[{"role": "user", "content": [part | {"source_lang_code": None}]}])
    assert server.scripted.history[-1].prompt == "Hallo"
    german = {"role": "user", "content": [part | {"source_lang_code": "de"}]}
    await chat(server, messages=[german, {"role": "assistant", "content": "Hi"}, german])
    assert server.scripted.history[-1].prompt == "text de: HalloHitext de: Hallo"


@pytest.mark.parametrize(
    ("template", "members"),
    [
        ("{{ m.name }}{{ m.content }}", {"name": "Hugo"}),
        ("{% if m['content'][0] == '/' %}{{ m.command }}{% endif %}{{ m['content'] }}", {"command": "help"}),
        ("{% for p in m.content %}{{ '[image]' if 'image' in p else p }}{% endfor %}", {"image": None}),
        ("{% for p in m.content %}{{ '[image]' if 'image' in p else p }}{% endfor %}", {"image": "a.png"}),
        ("{{ m.role }}{% for p in m.content %}{{ p }}{% endfor %}", {"role": "user"}),
    ],
)
async def test_members_that_a_template_does_not_read_in_parts(
    server: RunningServer, template: str, members: dict[str, Any]
) -> None:
    template = f"{{% for m in messages %}}{template}{{% endfor %}}"
    part = {"type": "text", "text": "Hallo"}
    await chat(server, messages=[{"role": "user", "content": [part]}], chat_template=template)
    without = server.scripted.history[-1].prompt
    await chat(server, messages=[{"role": "user", "content": [part | members]}], chat_template=template)
    assert server.scripted.history[-1].prompt == without


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


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
DOUBLING = "{% set ns = namespace(t='x') %}{% for i in range(99) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "reason"),
    [(ENDLESS, "it takes more than 0.5 seconds"), (DOUBLING, "it takes more than ")],
)
async def test_endless_template_is_refused_and_harms_nobody(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, template: str, reason: str
) -> None:
    """Two clients bring it, in both ways in which chats are read, while others ask."""
    monkeypatch.setattr(bounded, "MAX_SECONDS", 0.5)
    await chat(server)
    long = [{"role": "user", "content": "word " * 5000}]
    with longest_hold() as hold:
        endless = [
            asyncio.create_task(chat(server, chat_template=template)),
            asyncio.create_task(server.post("/v1/chat/completions", {"messages": long, "chat_template": template})),
            asyncio.create_task(server.post("/tokenize", {"messages": MESSAGES, "chat_template": template})),
        ]
        while not all(each.done() for each in endless):
            assert (await server.get("/ping")).status == 200
            assert (await chat(server)).status == 200
    for each in endless:
        answer = await each
        assert answer.status == 400
        assert f"`chat_template` cannot be used for these messages: {reason}" in answer.body.decode()
    assert hold.seconds < HELD, hold.callback


async def test_endless_template_of_the_directory(
    serve: Serve, model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Serve a template that ends for a single message, with which models are tried at the start."""
    monkeypatch.setattr(bounded, "MAX_SECONDS", 0.5)
    template = "{% if messages | length > 1 %}" + ENDLESS + "{% endif %}hello"
    server = await serve(model_dir({"serving.properties": SCRIPTED + f"option.chat_template={template}\n"}))
    with longest_hold() as hold:
        several = asyncio.create_task(chat(server))
        assert (await server.post("/invocations", {"messages": [MESSAGES[0]]})).status == 200
        answer = await several
    assert answer.status == 400
    assert "`messages` are refused by the chat template: it takes more than 0.5 seconds" in answer.body.decode()
    assert hold.seconds < HELD, hold.callback
