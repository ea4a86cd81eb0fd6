"""Fetching of images, from a local server that the tests treat as a public one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from lmi_core.configuration.properties import RequestProperties
from lmi_core.errors import InvalidPayload
from lmi_handlers.chat.images import fetch_image

PLACE = "messages.0.content.0.image_url.url"
CONTENT = b"not looked at here"


class Host:
    """Counts the requests that reach it."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.release = asyncio.Event()
        self.sent = 0  # bytes of an endless answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        if request.path == "/slow":
            await self.release.wait()
        if request.path.startswith("/hop"):
            raise web.HTTPFound(request.query["to"])
        if request.path == "/around":
            raise web.HTTPFound("/around")
        if request.path == "/endless":
            return await self.send_on(request)
        return web.Response(status=404 if request.path == "/missing" else 200, body=CONTENT)

    async def send_on(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                await response.write(bytes(100_000))
                self.sent += 100_000
        return response


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
async def url(host: Host) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_get("/{path:.*}", host.answer)
    async with TestServer(application) as server:
        yield str(server.make_url("")).rstrip("/")
        host.release.set()


@pytest.fixture
def everything_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmi_core.host.addresses.is_public", lambda address: True)


def options(domains: str | None = "127.0.0.1", **given: Any) -> RequestProperties:
    return RequestProperties(allowed_media_domains=domains, **given)


async def refusal(url: str, allowed: RequestProperties) -> str:
    with pytest.raises(InvalidPayload) as raised:
        await fetch_image(url, PLACE, allowed)
    assert raised.value.message.startswith(f"`{PLACE}` ")
    return raised.value.message.removeprefix(f"`{PLACE}` ")


@pytest.mark.parametrize("domains", ["127.0.0.1", "images.example.com, 127.0.0.1", "*", '["a.b", "127.0.0.1"]'])
async def test_allowed_host(url: str, everything_is_public: None, domains: str) -> None:
    assert await fetch_image(url + "/cat.png", PLACE, options(domains)) == CONTENT


@pytest.mark.parametrize("domains", [None, "", "images.example.com", "0.0.1", "[]"])
async def test_host_that_is_not_allowed(url: str, host: Host, everything_is_public: None, domains: str | None) -> None:
    assert await refusal(url, options(domains)) == (
        "cannot be fetched: option.allowed_media_domains does not include 127.0.0.1"
    )
    assert host.paths == []


async def test_private_address_of_an_allowed_host(url: str, host: Host) -> None:
    port = url.rpartition(":")[2]
    for name in ("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]"):
        assert "cannot be fetched" in await refusal(f"http://{name}:{port}/", options("*"))
    assert "the host is not on the Internet" in await refusal(url, options("*"))
    assert host.paths == []


@pytest.mark.parametrize("domains", [None, "*"])
async def test_private_address_of_a_host_that_may_have_one(url: str, host: Host, domains: str | None) -> None:
    allowed = options(domains, allowed_private_media_domains="store.local, 127.0.0.1")
    assert await fetch_image(url + "/cat.png", PLACE, allowed) == CONTENT
    port = url.rpartition(":")[2]
    for name in ("127.0.0.2", "[::ffff:127.0.0.1]"):
        assert "cannot be fetched" in await refusal(f"{url}/hop?to=http://{name}:{port}/", allowed)
    assert host.paths == ["/cat.png", "/hop", "/hop"]


@pytest.mark.parametrize("given", ["*", "*.local", "store.local,*"])
def test_private_addresses_are_never_those_of_every_host(given: str) -> None:
    with pytest.raises(ValueError, match="must be the names or addresses of hosts"):
        options(allowed_private_media_domains=given)


async def test_redirect(url: str, host: Host, everything_is_public: None) -> None:
    assert await fetch_image(f"{url}/hop?to=/cat.png", PLACE, options()) == CONTENT
    assert host.paths == ["/hop", "/cat.png"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("http://other.example.com/", "option.allowed_media_domains does not include other.example.com"),
        ("file:///etc/passwd", "file:///etc/passwd is not an http or https URL"),
    ],
)
async def test_redirect_to_what_is_not_allowed(url: str, everything_is_public: None, target: str, reason: str) -> None:
    assert await refusal(f"{url}/hop?to={target}", options()) == f"cannot be fetched: {reason}"


async def test_redirect_to_a_private_address(url: str, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmi_core.host.addresses.is_public", lambda address: address == "127.0.0.1")
    port = url.rpartition(":")[2]
    message = await refusal(f"{url}/hop?to=http://127.0.0.2:{port}/", options("*"))
    assert "the host is not on the Internet" in message
    assert host.paths == ["/hop"]


async def test_endless_redirects(url: str, host: Host, everything_is_public: None) -> None:
    assert await refusal(url + "/around", options()) == "cannot be fetched: there are more than 3 redirects"
    assert len(host.paths) == 4


async def test_size(url: str, everything_is_public: None) -> None:
    assert await fetch_image(url, PLACE, options(max_image_size=len(CONTENT))) == CONTENT
    message = await refusal(url, options(max_image_size=len(CONTENT) - 1))
    assert message == f"must be an image of at most {len(CONTENT) - 1} bytes (option.max_image_size)"


async def test_endless_body(url: str, host: Host, everything_is_public: None) -> None:
    message = await refusal(url + "/endless", options(max_image_size=1_000_000))
    assert message == "must be an image of at most 1000000 bytes (option.max_image_size)"
    assert host.sent < 20_000_000  # and what both sides' buffers hold


async def test_long_addresses_are_not_repeated(url: str, everything_is_public: None) -> None:
    for long in (
        "http://" + "a" * 100_000,
        f"{url}/hop?to=gopher://{'b' * 5000}",
        f"{url}/hop?to=http://{'c.' * 2000}com",
    ):
        assert len(await refusal(long, options())) < 500


async def test_time(url: str, everything_is_public: None) -> None:
    message = await refusal(url + "/slow", options(image_fetch_timeout=1))
    assert message == "cannot be fetched: it took more than 1 seconds (option.image_fetch_timeout)"


async def test_status(url: str, everything_is_public: None) -> None:
    assert await refusal(url + "/missing", options()) == "cannot be fetched: the server answered with status 404"


@pytest.mark.parametrize("wrong", ["http://", "http://127.0.0.1:99999/", "https://[::1/"])
async def test_no_url(wrong: str) -> None:
    assert (await refusal(wrong, options("*"))).startswith("cannot be fetched: ")
