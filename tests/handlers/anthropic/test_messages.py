"""What becomes of messages: the chat that the template gets, and which are refused."""

from typing import Any

import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.anthropic.asking import COUNT, SHOWN, TEXT, ask, message, refusal, rendered
from tests.handlers.chat.test_images import PROPERTIES, SeeingPlugin, base64

HI = {"role": "user", "content": "Hi"}
SYSTEM_FIRST = (
    "option.chat_template={% for message in messages %}"
    "{% if message.role == 'system' and not loop.first %}{{ raise_exception() }}{% endif %}"
    "{{ message.role }}: {{ message.content }};{% endfor %}\n"
)


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + SHOWN}))


def text(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": each} for each in texts]


async def test_messages_of_one_role_become_one(server: RunningServer) -> None:
    """Chat templates, of Mistral's models for example, refuse two in a row."""
    messages = [
        HI,
        {"role": "user", "content": text("there", "!")},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "So", "signature": ""}, *text("Hello")]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "they", "signature": ""}, *text("you")]},
        HI,
    ]
    await message(server, messages=messages, system=text("Be kind.", "Be brief."))
    assert rendered(server) == [
        {"role": "system", "content": "Be kind.\nBe brief."},
        {"role": "user", "content": "Hi\nthere\n!"},
        {"role": "assistant", "content": "Hello\nyou", "reasoning_content": "So\nthey", "reasoning": "So\nthey"},
        {"role": "user", "content": "Hi"},
    ]


async def test_system_among_the_messages(server: RunningServer) -> None:
    messages = [HI, {"role": "system", "content": "It is late."}, HI]
    await message(server, messages=messages, system="Be kind.")
    assert [each["role"] for each in rendered(server)] == ["system", "user", "system", "user"]


async def test_template_that_takes_system_only_first(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + SYSTEM_FIRST}))
    messages = [HI, {"role": "system", "content": text("It is late.")}, HI]
    await message(server, messages=messages, system="Be kind.")
    assert server.scripted.history[-1].prompt == "system: Be kind.\nIt is late.;user: Hi\nHi;"
    counted = await ask(server, COUNT, messages=messages, system="Be kind.")
    assert counted.json()["input_tokens"] == len(server.scripted.history[-1].prompt_ids)


async def test_prefilled_answer(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    server.scripted.enqueue(Script(" B)"))
    found = await message(server, messages=[HI, {"role": "assistant", "content": "The best answer is"}])
    assert server.scripted.history[-1].prompt == "user: Hi\nassistant: The best answer is"
    assert found["content"] == [{"type": "text", "text": " B)"}]


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}]])
async def test_empty_last_message_of_the_assistant(server: RunningServer, content: Any) -> None:
    assert (await message(server, messages=[HI, {"role": "assistant", "content": content}]))["content"] == text(TEXT)
    assert rendered(server) == [HI]


async def test_documents(server: RunningServer) -> None:
    plain = {"type": "text", "media_type": "text/plain", "data": "Paris is sunny."}
    blocks = [
        {"type": "document", "source": plain, "title": "Weather", "context": "Of today.", "citations": None},
        {"type": "document", "source": {"type": "content", "content": text("Rome too.")}},
        {"type": "document", "source": {"type": "content", "content": "And Oslo."}},
        {"type": "text", "text": "Where?"},
    ]
    await message(server, messages=[{"role": "user", "content": blocks}])
    assert rendered(server)[0]["content"] == "Weather\nOf today.\nParis is sunny.\nRome too.\nAnd Oslo.\nWhere?"


async def test_images(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": PROPERTIES}), plugins=[SeeingPlugin()])

    def image(data: bytes) -> dict[str, Any]:
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64(data)}}

    messages = [
        {"role": "user", "content": [image(b"one"), *text("Look.")]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [image(b"two")]}]},
    ]
    found = await message(server, messages=messages, system="See.")
    request = server.scripted.history[-1]
    assert request.image_prompt is not None
    assert request.image_prompt.content == [b"one", b"two"]
    words = server.scripted.tokenizer.decode(request.prompt_ids)
    assert words.startswith("(messages.0.content.0.source)(messages.2.content.0.content.0.source)system: See.\n")
    counted = await ask(server, COUNT, messages=messages, system="See.")
    assert counted.json()["input_tokens"] == found["usage"]["input_tokens"] == len(request.prompt_ids)
    big = [{"role": "user", "content": [image(b"x" * 17)]}]
    assert await refusal(server, messages=big, system="See.") == (
        "`messages.0.content.0.source` must be an image of at most 16 bytes (option.max_image_size)"
    )
    link = {"type": "image", "source": {"type": "url", "url": "https://example.com/cat.png"}}
    assert await refusal(server, messages=[{"role": "user", "content": [link]}]) == (
        "`messages.0.content.0.source` cannot be fetched: option.allowed_media_domains does not include example.com"
    )


def block(role: str = "user", **members: Any) -> dict[str, Any]:
    return {"messages": [HI, {"role": role, "content": [members]}]}


PDF = {"type": "base64", "media_type": "application/pdf", "data": ""}
PLACE = "`messages.1.content.0"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"messages": []}, "`messages` must have at least 1 item"),
        ({"messages": ...}, "`messages` is required"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "`messages.0.role` must be 'user', 'assistant' or 'system'"),
        ({"max_tokens": ...}, "`max_tokens` is required"),
        ({"max_tokens": None}, "`max_tokens` is required"),
        ({"max_tokens": -1}, "`max_tokens` must be greater than or equal to 1. Given: -1"),
        ({"stop_sequences": "x"}, "`stop_sequences` must be a valid list"),
        ({"stop_sequences": [""]}, "`stop_sequences.0` must have at least 1 character"),
        ({"stop_sequences": ["x"], "stop": "x"}, "`stop_sequences` and `stop` are the same parameter"),
        ({"temperature": 3}, "`temperature` must be less than or equal to 2"),
        ({"n": 2}, "`n` must be 1, because an answer is one message. Given: 2"),
        ({"return_token_ids": True}, "`return_token_ids` must be null"),
        (block(type="search_result"), f"{PLACE}.type` must be 'text', 'image', 'document', 'tool_use', 'tool_result'"),
        (block(type="text"), f"{PLACE}` must have `text`, because its type is text"),
        (
            block(type="image", source=PDF),
            f"{PLACE}` must have `source.data`, and a `source.media_type` that is one of image/",
        ),
        (
            block(type="image", source={"type": "file", "file_id": "x"}),
            f"{PLACE}` must have a `source` of the type base",
        ),
        (block(type="image", source={"type": "url", "url": "data:,x"}), f"{PLACE}` must have an http or https URL as"),
        (
            block(type="document", source=PDF),
            f"{PLACE}` must have a `source` of the type text or content, not base64: PDFs and stored files are not "
            "read. Send the text of the document instead, extracted with a program such as pdftotext",
        ),
        (
            block(type="document", source={"type": "text", "data": "x"}, citations={"enabled": True}),
            f"{PLACE}` must have no `citations`: they are not supported",
        ),
        (block(type="tool_result"), f"{PLACE}` must have `tool_use_id`, because its type is tool_result"),
        (
            block(type="thinking", thinking="x"),
            "`messages.1` must contain blocks of the types text, image, document, tool_result in a message of the role "
            "user, not thinking (0)",
        ),
        (
            block("assistant", type="tool_use", id="toolu_1", name="f", input={}),
            "`messages` must not end with a tool_use: its tool_result must follow",
        ),
        (
            block("assistant", type="thinking", thinking="x"),
            "`messages` must not end with thinking alone: an answer can only continue a text",
        ),
        ({"system": [{"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}]}, "`system` must contain"),
        ({"container": "id"}, "`container` must be null: this server does not run code. Given: 'id'"),
        ({"mcp_servers": [{"type": "url"}]}, "`mcp_servers` must be null or []: this server calls no other servers"),
        ({"chat_template_kwargs": {"tools": []}}, "`chat_template_kwargs` must contain only variables of the"),
    ],
)
async def test_refused(server: RunningServer, fields: dict[str, Any], told: str) -> None:
    assert (await refusal(server, **fields)).startswith(told)
