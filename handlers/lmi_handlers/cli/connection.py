"""The server for `lmi generate`, `lmi chat` and `lmi try`: a running one, or a private one."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from yarl import URL

from lmi_core.errors import ConfigurationError

API_KEYS = ("LMI_API_KEY", "OPENAI_API_KEY")  # environment variables; the first holds the key for a remote server

_URL = re.compile(r"https?://", re.I)
_ADDRESS = re.compile(r"(localhost|[\w.-]*\.[\w.-]+|\[[\da-f:.]+\]):\d{1,5}(/.*)?", re.I)


@dataclass(frozen=True)
class Connection:
    """The target of requests: the server at a URL, or a private one for a model directory or a hub id."""

    target: str
    options: tuple[str, ...] = ()
    plugins_directory: Path | None = None
    strict: bool = False  # whether warnings about the model directory are errors
    api_key_variable: str | None = None  # the environment variable that holds the key for the server at a URL


@asynccontextmanager
async def connect(to: Connection) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a client of the server.

    Raise ConfigurationError if the model cannot be served or, if `strict`, on a warning; otherwise print warnings to
    stderr.
    """
    if _URL.match(to.target):
        if to.options or to.strict:
            given = "-o" if to.options else "--strict"
            raise ConfigurationError(f"{given} is for models that this command serves itself, not for {to.target}")
        key = _api_key(to.api_key_variable)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # OpenAI's clients use a base URL that ends with the version
        try:
            base = URL(to.target.rstrip("/").removesuffix("/v1") + "/")
        except ValueError as error:  # a port that does not exist, for example
            raise ConfigurationError(f"{to.target}: {error}") from None
        async with aiohttp.ClientSession(base, headers=headers, timeout=aiohttp.ClientTimeout(total=None)) as client:
            yield client
        return
    if _ADDRESS.fullmatch(to.target) and not Path(to.target).exists():
        raise ConfigurationError(f"{to.target} does not exist: for the server at that address, give http://{to.target}")
    if to.api_key_variable is not None:
        raise ConfigurationError(f"--api-key-env is for a server at a URL, not for {to.target}")
    from lmi_core import tolerance
    from lmi_handlers.cli.private_server import own_server, plan_of_command

    tolerance.logger.disabled = True  # the senders of requests here report ignored fields themselves
    only = plan_of_command(to.target, to.options, to.plugins_directory, strict=to.strict)
    async with own_server(only.plan, only.plugins) as (client, _):
        yield client


def _api_key(variable: str | None) -> str | None:
    """Return the API key in the environment, if any. Raise ConfigurationError if a named variable is missing."""
    names = API_KEYS if variable is None else (variable,)
    name = next((each for each in names if os.environ.get(each, "").strip()), None)
    if name is None:
        if variable is not None:
            raise ConfigurationError(f"--api-key-env: the environment variable {variable} is not set, or empty")
        return None
    key = os.environ[name].strip()
    if not (key.isascii() and key.isprintable()):  # the message shows the name, never the key
        raise ConfigurationError(f"the API key in {name} must consist of printable ASCII characters")
    return key
