"""Redirects from the Internet, which 127.0.0.1 is here, into a network, which every other address of this host is."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.host import addresses
from lmi_core.remote.web import requests
from lmi_core.remote.web.requests import request
from tests.archive_server import ArchiveServer, archive_server

INSIDE = "127.0.0.2"


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> Iterator[ArchiveServer]:
    """A server within the network."""
    for module in (addresses, requests):
        monkeypatch.setattr(module, "is_public", lambda address: address == "127.0.0.1")
    monkeypatch.setenv("NO_PROXY", "*")
    with archive_server(host=INSIDE) as server:
        server.put("secret.zip", b"secret")
        yield server


async def refusal(url: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        await request(url, {})
    return raised.value.message


async def read(url: str) -> bytes:
    answer = await request(url, {})
    try:
        return b"".join([piece async for piece in answer.pieces()])
    finally:
        await answer.close()


async def test_a_redirect_from_the_internet_into_a_network(web: ArchiveServer, inside: ArchiveServer) -> None:
    web.redirects["model.zip"] = f"{inside.url}/secret.zip"
    assert await refusal(f"{web.url}/model.zip") == (
        f"{web.url}/model.zip: the server redirects to {inside.url}/secret.zip, at {INSIDE}, which is not on the "
        "Internet: if you trust that URL, give it directly"
    )
    assert inside.requests == []


@pytest.mark.parametrize("host", ["%31%32%37.0.0.2", "127.0.0.%32"])
async def test_an_address_in_other_characters(web: ArchiveServer, inside: ArchiveServer, host: str) -> None:
    port = inside.url.rpartition(":")[2]
    web.redirects["model.zip"] = f"http://{host}:{port}/secret.zip"
    assert "the name of the host is unknown" in await refusal(f"{web.url}/model.zip")
    assert inside.requests == []


async def test_a_name_that_leads_into_a_network(
    web: ArchiveServer, inside: ArchiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = inside.url.rpartition(":")[2]
    resolve = socket.getaddrinfo

    def resolved(host: str, *rest: Any, **names: Any) -> Any:
        return resolve(INSIDE if host == "model.example" else host, *rest, **names)

    monkeypatch.setattr("socket.getaddrinfo", resolved)
    web.redirects["model.zip"] = f"http://model.example:{port}/secret.zip"
    assert f"redirects to http://model.example:{port}/secret.zip, at {INSIDE}" in await refusal(f"{web.url}/model.zip")
    assert inside.requests == []


async def test_what_an_operator_gives_may_be_anywhere(web: ArchiveServer, inside: ArchiveServer) -> None:
    assert await read(f"{inside.url}/secret.zip") == b"secret"
    inside.redirects["latest.zip"] = "/secret.zip"
    assert await read(f"{inside.url}/latest.zip") == b"secret"
    web.put("public.zip", b"public")
    inside.redirects["public.zip"] = f"{web.url}/public.zip"
    assert await read(f"{inside.url}/public.zip") == b"public"


async def test_the_way_back_from_the_internet(web: ArchiveServer, inside: ArchiveServer) -> None:
    inside.redirects["model.zip"] = f"{web.url}/model.zip"
    web.redirects["model.zip"] = f"{inside.url}/secret.zip"
    assert "which is not on the Internet" in await refusal(f"{inside.url}/model.zip")
    assert [path for path, _ in inside.requests] == ["/model.zip"]


@pytest.mark.parametrize(
    "host", [INSIDE, "[::1]", "localhost", "2130706434", "169.254.169.254", "%31%36%39.254.169.254"]
)
async def test_through_a_proxy_what_is_written_out_is_checked(
    web: ArchiveServer, inside: ArchiveServer, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", web.url)  # which answers in place of all hosts
    web.redirects["http://models.example/model.zip"] = f"http://{host}/secret.zip"
    web.put("http://models.example/other.zip", b"other")
    assert await read("http://models.example/other.zip") == b"other"
    monkeypatch.setattr(requests, "is_public", lambda address: False)
    before = len(web.requests)
    assert "which is not on the Internet" in await refusal("http://models.example/model.zip")
    assert len(web.requests) == before + 1


async def test_through_a_tunnel_what_is_written_out_is_checked(
    web: ArchiveServer, inside: ArchiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address is that of the model, and not the proxy's, which the connection is made to."""
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    for scheme in ("http", "https"):
        monkeypatch.setenv(f"{scheme}_proxy", web.url)
    web.redirects["http://models.example/model.zip"] = f"https://{INSIDE}/secret.zip"
    assert f"redirects to https://{INSIDE}/secret.zip, at {INSIDE}," in await refusal("http://models.example/model.zip")
    assert [path for path, _ in web.requests] == ["http://models.example/model.zip"]
