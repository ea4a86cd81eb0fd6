"""Roles of messages beyond those of OpenAI's API."""

from typing import Any

import pytest

from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve

# As Llama 3.1 has it: `ipython` is known, others are refused by nobody and written like any other.
LLAMA = """\
{% for message in messages %}{% if message.role == "tool" or message.role == "ipython" %}<ipython>{{ message.content }}
{% else %}<{{ message.role }}>{{ message['content'] | trim }}
{% endif %}{% endfor %}<assistant>"""
# `control` is a switch, whose text is never written; the roles that are not known are left out.
SWITCHED = """\
{% set think = messages | selectattr('role', 'equalto', 'control') | list | length > 0 %}
{% for message in messages %}{% if message.role[:8] == 'document' %}<document>{{ message.content }}
{% elif message['role'] in ['system', 'user', 'assistant'] %}<{{ message.role }}>{{ message['content'] }}
{% endif %}{% endfor %}<assistant>{{ '<think>' if think }}"""
REFUSING = """\
{% for message in messages %}{% if message.role not in ['user', 'assistant'] %}{{ raise_exception('Only two roles') }}\
{% endif %}{% endfor %}"""
CHATS = "/v1/chat/completions"
ROUTES = {CHATS: 400, "/invocations": 424, "/predictions/model": 424, "/api/chat": 400, "/tokenize": 400}
HI = {"role": "user", "content": "Hi"}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    files = {"serving.properties": SCRIPTED + "option.trust_request_chat_template=true\n"}
    return await serve(model_dir(files))


async def ask(server: RunningServer, template: str, *messages: dict[str, Any], path: str = CHATS) -> Answer:
    return await server.post(path, {"messages": [*messages], "chat_template": template, "stream": False})


@pytest.mark.parametrize(
    ("template", "message", "prompt"),
    [
        (LLAMA, {"role": "ipython", "content": "42"}, "<user>Hi\n<ipython>42\n<assistant>"),
        (LLAMA, {"role": "critic", "content": " Hi "}, "<user>Hi\n<critic>Hi\n<assistant>"),
        (SWITCHED, {"role": "control", "content": "thinking"}, "<user>Hi\n<assistant><think>"),
        (SWITCHED, {"role": "document 1", "content": ["Hi"]}, "<user>Hi\n<document>Hi\n<assistant>"),
    ],
)
async def test_role_that_the_template_knows_or_writes(
    server: RunningServer, template: str, message: dict[str, Any], prompt: str
) -> None:
    assert (await ask(server, template, HI, message)).status == 200
    assert server.scripted.history[-1].prompt == prompt


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"role": "robot", "content": "Hi"}, "role. Given: 'robot'"),  # its text is in the prompt, as the user's
        ({"role": "robot", "content": ""}, "role. Given: 'robot'"),
        ({"role": "content", "content": "Hi"}, "role. Given: 'content'"),  # which the template has as a member
        ({"role": "User", "content": "Hi"}, "role. Did you mean `user`? Given: 'User'"),
    ],
)
async def test_role_that_the_template_leaves_out(server: RunningServer, message: dict[str, Any], told: str) -> None:
    answer = await ask(server, SWITCHED, HI, message)
    error = answer.json()["error"]
    assert (answer.status, error["param"]) == (400, "messages.1.role")
    writes = "must be one that the chat template writes: it leaves out the messages of this "
    assert error["message"] == f"`messages.1.role` {writes}{told}"
    assert server.scripted.history == []


async def test_template_that_refuses_roles_has_its_own_words(server: RunningServer) -> None:
    answer = await ask(server, REFUSING, HI, {"role": "robot", "content": "Hi"})
    assert answer.status == 400
    assert answer.json()["error"]["message"] == "`chat_template` cannot be used for these messages: Only two roles"


@pytest.mark.parametrize("path", ROUTES)
async def test_every_route(serve: Serve, model_dir: ModelDirectory, path: str) -> None:
    files = {"serving.properties": SCRIPTED + "option.chat_template=chat.jinja\n", "chat.jinja": SWITCHED}
    server = await serve(model_dir(files))
    written, left_out = [
        await server.post(path, {"messages": [HI, {"role": role, "content": "x"}], "stream": False})
        for role in ("document", "robot")
    ]
    assert (written.status, left_out.status) == (200, ROUTES[path])
    assert b"`messages.1.role` must be one that the chat template writes" in left_out.body


async def test_known_roles_are_left_to_the_template(server: RunningServer) -> None:
    """A template without a place for them leaves out what it has always left out."""
    assert (await ask(server, SWITCHED, HI, {"role": "tool", "content": "42"})).status == 200
    assert server.scripted.history[-1].prompt == "<user>Hi\n<assistant>"
