"""Management apart from inference: at an address of its own, with a token, and what is said at the start."""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from lmi_core.errors import ConfigurationError
from lmi_handlers.access.api_keys import ApiKeys
from lmi_handlers.access.credentials import Secret, TokenFile
from lmi_handlers.access.options import AccessOptions, ListenAddress
from lmi_handlers.cli.plans import notes_of
from lmi_handlers.container.launch import Launch, read_launch
from lmi_handlers.container.search import Arguments
from lmi_handlers.testing import running_server
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer

ADAPTERS = "/models/model/adapters"
TOKEN = "token-of-operators"


@pytest.fixture
def directory(model_dir: ModelDirectory) -> Path:
    return model_dir({"serving.properties": SCRIPTED, "new/model.py": ""})


@asynccontextmanager
async def managed(server: RunningServer) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a client of the server's address for management."""
    assert server.server.management is not None
    listening = server.server.management.listening
    if listening.path is None:
        async with aiohttp.ClientSession(server.server.management.address) as client:
            yield client
    else:
        connector = aiohttp.UnixConnector(listening.path)
        async with aiohttp.ClientSession("http://localhost", connector=connector) as client:
            yield client


async def status(client: aiohttp.ClientSession, method: str, path: str, headers: Mapping[str, str] = {}) -> int:
    async with client.request(method, path, headers=headers) as response:
        return response.status


@pytest.mark.parametrize("unix", [False, True])
async def test_each_address_serves_its_own(directory: Path, tmp_path: Path, unix: bool) -> None:
    path = str(tmp_path / "management")
    with socket.socket(socket.AF_UNIX) as left:  # by a server that was killed
        left.bind(path)
    address = ListenAddress(path=path) if unix else ListenAddress("127.0.0.1", 0)
    async with running_server(directory, access=AccessOptions(management_address=address)) as server:
        async with managed(server) as client:
            assert await status(client, "POST", f"{ADAPTERS}?name=new&src=new") == 200
            assert await status(client, "GET", ADAPTERS) == 200
            assert await status(client, "GET", "/ping") == 200
            assert await status(client, "GET", "/v1/models") == 200
            assert await status(client, "POST", "/invocations") == 403
            assert await status(client, "DELETE", f"{ADAPTERS}/new", {"Origin": "http://evil.example"}) == 403
            if unix:
                assert Path(path).stat().st_mode & 0o777 == 0o600
            else:
                assert await status(client, "DELETE", f"{ADAPTERS}/new", {"Host": "evil.example"}) == 403
        refused = await server.get(ADAPTERS)
        assert refused.status == 403
        assert refused.json()["error"] == "this route is only served at the server's management_address"
        assert (await server.post("/invocations", {"inputs": "Hi"})).status == 200
        assert list(server.model.adapters.folders) == ["new"]
    assert Path(path).exists() is not unix


async def test_a_token_at_its_own_address(directory: Path) -> None:
    access = AccessOptions(
        api_keys=ApiKeys(["sk-ann"]),
        management_address=ListenAddress("127.0.0.1", 0),
        management_token=Secret.of(TOKEN),
    )
    async with running_server(directory, access=access) as server, managed(server) as client:
        for headers, expected in (
            ({}, 401),
            ({"x-api-key": "sk-ann"}, 401),
            ({"Authorization": f"Bearer {TOKEN}"}, 200),
        ):
            assert await status(client, "GET", ADAPTERS, headers) == expected
            assert await status(client, "GET", "/v1/models", headers) == expected
        assert await status(client, "GET", "/ping") == 200


async def test_a_token_file_that_changes(directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (file := tmp_path / "token").write_text(f"{TOKEN}\n")
    access = AccessOptions(management_token=TokenFile(file))
    (watched,) = access.watched
    assert watched.files == [file]
    async with running_server(directory, access=access) as server:

        async def statuses() -> list[int]:
            return [
                await status(server.client, "GET", ADAPTERS, {"Authorization": f"Bearer {token}"})
                for token in (TOKEN, "another")
            ]

        assert await statuses() == [200, 401]
        file.write_text(" \n")
        with pytest.raises(ConfigurationError, match=r"management_token_file .* is empty"):
            watched.read()
        assert await statuses() == [200, 401]
        file.write_text("another")
        watched.read()
        assert await statuses() == [401, 200]
    assert "another" not in caplog.text


async def test_a_socket_that_another_server_has(directory: Path, tmp_path: Path) -> None:
    access = AccessOptions(management_address=ListenAddress(path=str(tmp_path / "management")))
    async with running_server(directory, access=access):
        with pytest.raises(ConfigurationError, match=r"cannot listen on unix:.*Choose with management_address"):
            async with running_server(directory, access=access):
                pass
    missing = AccessOptions(management_address=ListenAddress(path=str(tmp_path / "no" / "socket")))
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        async with running_server(directory, access=missing):
            pass


async def test_sagemaker_manages_from_elsewhere(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_server(directory, access=AccessOptions(multi_model=True)) as server:
        monkeypatch.setattr(aiohttp.web.BaseRequest, "remote", "192.0.2.7")
        assert (await server.get(ADAPTERS, headers={"Host": "model.aws.local:8080"})).status == 200
        foreign = {"Host": "model.aws.local:8080", "Origin": "http://evil.example"}
        assert (await server.get(ADAPTERS, headers=foreign)).status == 403


def launched(directory: Path, environment: Mapping[str, str], host: str | None = None) -> Launch:
    return read_launch(Arguments((str(directory),), host=host), environment)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://0.0.0.0:9000", ListenAddress("0.0.0.0", 9000)),
        ("http://127.0.0.1", ListenAddress("127.0.0.1", 80)),
        ("unix:/run/lmi.sock", ListenAddress(path="/run/lmi.sock")),
        ("http://127.0.0.1:8080", None),  # inference's own
    ],
)
def test_addresses(directory: Path, given: str, expected: ListenAddress | None) -> None:
    access = launched(directory, {"SERVING_MANAGEMENT_ADDRESS": given}).access
    assert access.management_address == expected


@pytest.mark.parametrize("given", ["9000", "unix:relative.sock", f"unix:/{'a' * 107}", "ftp://127.0.0.1:9000"])
def test_addresses_that_are_none(directory: Path, given: str) -> None:
    with pytest.raises(ConfigurationError, match="management_address must "):
        launched(directory, {"SERVING_MANAGEMENT_ADDRESS": given})


def test_secrets_of_the_environment_are_not_shown(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "keys").write_text("ann sk-ann\n")
    environment = {
        "SERVING_API_KEYS": "sk-secret, bob sk-secret-too",
        "SERVING_API_KEYS_FILE": str(tmp_path / "keys"),
        "SERVING_KEY_REQUESTS_PER_MINUTE": "60",
        "SERVING_MANAGEMENT_TOKEN": "sk-secret-token",
    }
    launch = launched(directory, environment)
    assert launch.access.api_keys is not None
    assert launch.access.api_keys.num_holders == 3
    found = launch.access.api_keys.find(["sk-secret-too"])
    assert found is not None
    assert (found.name, found.limits.requests_per_minute) == ("bob", 60)
    assert "sk-secret" not in str([launch.settings.shown, launch.warnings, launch.access])
    environment["SERVING_MANAGEMENT_TOKEN_FILE"] = str(tmp_path / "token")
    with pytest.raises(ConfigurationError, match="cannot be used together"):
        launched(directory, environment)
    del environment["SERVING_MANAGEMENT_TOKEN"]
    assert launched(directory, environment).access.management_token is not None


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_token(directory: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(ConfigurationError, match=r"management_token_file .* is empty"):
        launched(directory, {"SERVING_MANAGEMENT_TOKEN_FILE": str(tmp_path / "token")})


KEYED = {"SERVING_API_KEYS": "sk-ann"}
OPEN = {"SERVING_OPEN_MANAGEMENT": "true"}
ELSEWHERE = {"SERVING_MANAGEMENT_ADDRESS": "http://0.0.0.0:9000"}


@pytest.mark.parametrize(
    ("environment", "host", "expected"),
    [
        ({}, None, []),
        ({}, "localhost", []),
        (OPEN, None, []),
        ({}, "0.0.0.0", ["can generate without a key"]),
        (KEYED, "0.0.0.0", []),
        (KEYED | OPEN, "0.0.0.0", ["because of open_management=true"]),
        (KEYED | {"SAGEMAKER_MULTI_MODEL": "true"}, "0.0.0.0", ["because of SAGEMAKER_MULTI_MODEL"]),
        (KEYED | OPEN | {"SERVING_MANAGEMENT_TOKEN": TOKEN}, "0.0.0.0", []),
        (ELSEWHERE, None, ["anyone who can reach 0.0.0.0:9000 can load models"]),
        (ELSEWHERE | {"SERVING_MANAGEMENT_TOKEN": TOKEN}, None, []),
    ],
)
def test_what_is_open_is_said(
    directory: Path, environment: dict[str, str], host: str | None, expected: list[str]
) -> None:
    lines = list(notes_of(launched(directory, environment, host)))
    assert len(lines) == len(expected)
    assert all(part in line for part, line in zip(expected, lines, strict=True))


def test_an_empty_host_is_not_every_host(directory: Path) -> None:
    with pytest.raises(ConfigurationError, match="--host must be an address"):
        launched(directory, {}, "")


def test_limits_without_keys_are_told(directory: Path) -> None:
    launch = launched(directory, {"SERVING_KEY_MAX_CONCURRENT_REQUESTS": "2"})
    assert any("key_max_concurrent_requests has no effect" in warning for warning in launch.warnings)
