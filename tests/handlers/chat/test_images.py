"""Images in chats, on a backend that puts a token into the prompt for each."""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from lmi_core.backend import Backend
from lmi_core.generation.images import Image, ImagePrompt
from lmi_core.hookspecs import hookimpl
from lmi_plugins.backends.scripted import ScriptedBackend
from tests.conftest import Answer, ModelDirectory, RunningServer, Serve

PROPERTIES = "option.rolling_batch=seeing\noption.max_images=2\noption.max_image_size=16\n"
PARTS = """\
{% for message in messages %}{{ message.role }}:\
{% for part in message['content'] %} {{ part.text if part.type == 'text' else '(image)' }}{% endfor %}\
{% endfor %}"""


class SeeingBackend(ScriptedBackend):
    """Takes three images, whatever they hold."""

    name = "seeing"
    max_images = 3

    def image_placeholder(self, number: int) -> str | None:
        return f"(image {number})"

    async def place_images(
        self, prompt_ids: list[int], images: Sequence[Image], parameters: Mapping[str, Any]
    ) -> ImagePrompt:
        places = [self.tokenizer.encode(f"({image.place})")[0] for image in images]
        return ImagePrompt([*places, *prompt_ids], [image.data for image in images])


class SeeingPlugin:
    @hookimpl
    def lmi_register_backends(self, register: Callable[[type[Backend[Any]]], None]) -> None:
        register(SeeingBackend)


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": PROPERTIES}), plugins=[SeeingPlugin()])


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, "detail": "low"}}


def given(data: bytes) -> dict[str, Any]:
    return image("data:image/png;base64," + base64(data))


async def chat(
    server: RunningServer, *messages: list[Any], path: str = "/v1/chat/completions", **fields: Any
) -> Answer:
    body = {"messages": [{"role": "user", "content": content} for content in messages]} | fields
    return await server.post(path, body)


async def refusal(server: RunningServer, *messages: list[Any], **fields: Any) -> str:
    answer = await chat(server, *messages, **fields)
    assert answer.status == 400, answer.body
    assert server.scripted.history == []
    return str(answer.json()["error"]["message"])


TEXT = {"type": "text", "text": "What is it?"}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/invocations"])
async def test_images_in_the_order_of_the_messages(server: RunningServer, path: str) -> None:
    answer = await chat(server, [given(b"one"), TEXT], [TEXT, image(base64(b"two"))], path=path)
    assert answer.status == 200, answer.body
    (request,) = server.scripted.history
    assert request.image_prompt is not None
    assert request.image_prompt.content == [b"one", b"two"]
    words = server.scripted.tokenizer.decode(request.prompt_ids)
    assert words.startswith("(messages.0.content.0.image_url.url)(messages.1.content.1.image_url.url)user:")
    assert answer.json()["usage"]["prompt_tokens"] == len(request.prompt_ids)


async def test_image_as_the_api_of_responses_writes_it(server: RunningServer) -> None:
    url = "data:image/png;base64," + base64(b"one")
    assert (await chat(server, [TEXT, {"type": "input_image", "image_url": url, "detail": "auto"}])).status == 200
    assert server.scripted.history[0].image_prompt is not None
    assert server.scripted.history[0].image_prompt.content == [b"one"]


async def test_template_of_texts(server: RunningServer) -> None:
    await chat(server, [TEXT, given(b"one")], [given(b"two"), TEXT])
    (request,) = server.scripted.history
    lines = ["user: (image 1)", "What is it?", "user: (image 2)", "What is it?", "assistant:"]
    assert request.prompt == "\n".join(lines)


async def test_template_of_parts(server: RunningServer) -> None:
    server.scripted.tokenizer.template = PARTS
    await chat(server, [TEXT, given(b"one")], [given(b"two"), TEXT])
    assert server.scripted.history[0].prompt == "user: What is it? (image)user: (image) What is it?"


async def test_fetched_image(serve: Serve, model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=request.path.encode())

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    properties = PROPERTIES + "option.allowed_media_domains=127.0.0.1\n"
    server = await serve(model_dir({"serving.properties": properties}), plugins=[SeeingPlugin()])
    async with TestServer(application) as host:
        url = str(host.make_url("/cat.png"))
        assert "the host is not on the Internet" in await refusal(server, [image(url)])
        monkeypatch.setattr("lmi_core.host.addresses.is_public", lambda address: True)
        assert (await chat(server, [given(b"one"), image(url)])).status == 200
    (request,) = server.scripted.history
    assert request.image_prompt is not None
    assert request.image_prompt.content == [b"one", b"/cat.png"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://example.com/a", "cannot be fetched: option.allowed_media_domains does not include example.com"),
        ("HTTPS://example.com/a", "cannot be fetched: option.allowed_media_domains does not include example.com"),
        ("file:///etc/passwd", "must be an http or https URL, or an image in base64"),
        ("not base64!", "must be an http or https URL, or an image in base64"),
        ("é", "must be an http or https URL, or an image in base64"),
        ("data:image/png;base64,a", "must be an http or https URL, or an image in base64"),
        ("data:image/png,abc", "must be a data URL in base64 (data:image/png;base64,...)"),
        ("data:", "must be a data URL in base64 (data:image/png;base64,...)"),
        (base64(b"x" * 17), "must be an image of at most 16 bytes (option.max_image_size)"),
    ],
)
async def test_what_is_refused(server: RunningServer, url: str, message: str) -> None:
    assert await refusal(server, [TEXT, image(url)]) == f"`messages.0.content.1.image_url.url` {message}"


async def test_too_many(server: RunningServer) -> None:
    message = "`messages.1.content.0` is one image too many: `messages` must contain at most 2"
    assert await refusal(server, [given(b"one"), given(b"two")], [given(b"three")]) == message


async def test_no_more_than_the_backend_takes(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = PROPERTIES.replace("max_images=2", "max_images=9")
    server = await serve(model_dir({"serving.properties": properties}), plugins=[SeeingPlugin()])
    message = "`messages.0.content.3` is one image too many: `messages` must contain at most 3"
    assert await refusal(server, [given(b"one")] * 4) == message


async def test_truncated_prompt(server: RunningServer) -> None:
    message = "`truncate_prompt_tokens` cannot be used with images, which it could cut off"
    assert await refusal(server, [given(b"one"), TEXT], truncate_prompt_tokens=2) == message
    assert (await chat(server, [TEXT], truncate_prompt_tokens=2)).status == 200


async def test_prompt_that_the_images_make_too_long(server: RunningServer) -> None:
    words = {"type": "text", "text": "word " * (server.scripted.max_length - 5)}
    assert (await chat(server, [words])).status == 200
    server.scripted.history.clear()
    message = (
        "This model's maximum context length is 2048 tokens. However, "
        "`messages` must be at most 2047 tokens long. Given: 2048"
    )
    assert await refusal(server, [words, given(b"one")]) == message


async def test_tokenizing(server: RunningServer) -> None:
    body = {"messages": [{"role": "user", "content": [TEXT, given(b"one")]}]}
    answer = await server.post("/v2/tokenizer", body)
    assert "`messages.0.content.1` is an image, but only text can be tokenized" in answer.body.decode()
