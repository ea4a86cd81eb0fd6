"""`lmi generate` and `lmi chat` with a server that asks for an API key."""

import asyncio
import os
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from lmi_handlers.access.api_keys import ApiKeys
from lmi_handlers.access.options import AccessOptions
from lmi_handlers.cli.serving import ready_message
from lmi_handlers.http.server import Server
from lmi_handlers.testing import running_server
from tests.conftest import SCRIPTED
from tests.lmi_process import lmi, run_lmi

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "sk-ann"
HINT = "LMI_API_KEY in the environment gives one, and --api-key-env names another variable"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    directory = tmp_path_factory.mktemp("store") / "model"
    directory.mkdir()
    (directory / "serving.properties").write_text(f"{SCRIPTED}option.scripted_text=It is warm.\n")
    async with running_server(directory, access=AccessOptions(api_keys=ApiKeys([f"ann {KEY}"]))) as running:
        yield running.server


@pytest.fixture(scope="module")
def url(server: Server) -> str:
    return server.url


async def run(*arguments: str, given: str = "", **variables: str) -> tuple[int, str, str]:
    """Return the status, the output and the errors of `lmi`, in an environment with no other keys than these."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")} | variables
    result = await asyncio.to_thread(run_lmi, arguments, environment, given)
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        ((), {"LMI_API_KEY": KEY}),
        ((), {"LMI_API_KEY": f"{KEY}\n", "OPENAI_API_KEY": "that of another service"}),
        ((), {"OPENAI_API_KEY": KEY}),
        (("--api-key-env", "MINE"), {"MINE": KEY, "LMI_API_KEY": "other"}),
    ],
    ids=["own", "own first", "openai", "named"],
)
async def test_generate_shows_the_key(url: str, arguments: tuple[str, ...], variables: dict[str, str]) -> None:
    status, output, _ = await run("generate", url, "Hello", *arguments, **variables)
    assert (status, output) == (0, "It is warm.\n")


async def test_the_command_of_the_start_shows_the_key(server: Server) -> None:
    command = ready_message(server).partition(" -- try: ")[2]
    process = await asyncio.create_subprocess_shell(
        f"{command} --silent", stdout=asyncio.subprocess.PIPE, env={**os.environ, "LMI_API_KEY": KEY}
    )
    output, _ = await process.communicate()
    assert output == b'{"generated_text": "It is warm."}'


async def test_chat_shows_the_key(url: str) -> None:
    status, output, told = await run("chat", url, given="Hello\n", LMI_API_KEY=KEY)
    assert (status, told) == (0, "")
    assert re.fullmatch(r"It is warm\.\n3 tokens, .*\n", output)


async def test_a_key_that_is_missing_or_wrong(url: str) -> None:
    status, output, told = await run("generate", url, "Hello")
    assert (status, output) == (1, "")
    assert told.startswith("lmi: an API key is needed, as `Authorization: Bearer` or `x-api-key`: none was given. ")
    assert told.endswith(f"{HINT}\n")
    status, output, told = await run("chat", url, given="Hello\n", LMI_API_KEY="wrong")
    assert output.startswith("error: an API key is needed")
    assert f"the one given is not known. {HINT}" in output
    assert "wrong" not in output


@pytest.mark.parametrize(
    ("target", "variables", "message"),
    [
        ("http://127.0.0.1:1", {}, "--api-key-env: the environment variable MINE is not set, or empty"),
        ("http://127.0.0.1:1", {"MINE": " "}, "--api-key-env: the environment variable MINE is not set, or empty"),
        ("http://127.0.0.1:1", {"MINE": "sk-\n-ann"}, "the API key in MINE must consist of printable ASCII characters"),
        ("folder", {"MINE": KEY}, "--api-key-env is for a server at a URL, not for folder"),
    ],
    ids=["unset", "empty", "unsendable", "no server"],
)
async def test_a_variable_that_has_no_key(target: str, variables: dict[str, str], message: str) -> None:
    result = lmi("generate", target, "Hello", "--api-key-env", "MINE", **variables)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"lmi: {message}\n")
