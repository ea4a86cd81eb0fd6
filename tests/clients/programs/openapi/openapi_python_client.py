"""A client that openapi-python-client makes of `/openapi.json`, with the types of answers and errors."""

import importlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from openapi_spec_validator import validate

from tests.clients.programs.cases import case, equal, fault, hello, raising
from tests.clients.programs.values import ANSWER, HELLO, QUESTION

PACKAGE = "openapi-python-client"

USAGE = Path(__file__).parents[1] / "openapi_usage.py"
FOLDER = Path(os.environ["HOME"]) / "generated"
# Media types of streams, which the generator does not know, as ones that it passes on.
CONFIGURATION = """\
content_type_overrides:
  application/jsonlines: text/html
  application/x-ndjson: text/html
  application/vnd.amazon.eventstream: application/octet-stream
"""
ROUTES_OF_PLAIN_TEXT = 6  # whose other form of a body, plain text, the generator leaves out


@cache
def generated() -> str:
    """Generate the client, put it where it can be imported from, and return what the generator said."""
    FOLDER.mkdir()
    (FOLDER / "configuration.yml").write_text(CONFIGURATION, encoding="utf-8")
    options: list[str | Path] = [
        "--meta",
        "none",
        "--config",
        FOLDER / "configuration.yml",
        "--output-path",
        FOLDER / "lmi_client",
    ]
    command: list[str | Path] = [
        Path(sys.executable).with_name("openapi-python-client"),
        "generate",
        "--url",
        f"{hello()}/openapi.json",
    ]
    sys.path.insert(0, str(FOLDER))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # of ruff, with which it formats
    found = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}
    )
    return found.stdout + found.stderr


@case("OpenAPI", "the document is valid OpenAPI 3.1")
def valid() -> None:
    validate(httpx.get(f"{hello()}/openapi.json").json())


@case("OpenAPI", "a client of every route; plain text as a body is left out")
def complete() -> None:
    said = generated()
    equal(said.count("Unsupported content type text/plain"), ROUTES_OF_PLAIN_TEXT)
    equal((said.count("WARNING"), said.count("Unable to")), (ROUTES_OF_PLAIN_TEXT, 0))
    routes = sum(len(methods) for methods in httpx.get(f"{hello()}/openapi.json").json()["paths"].values())
    modules = [path for path in (FOLDER / "lmi_client" / "api").glob("*/*.py") if path.stem != "__init__"]
    equal(len(modules), routes)


@case("OpenAPI", "answers are typed: mypy's strict checks pass")
def typed() -> None:
    generated()
    equal(checked(USAGE), ["Success: no issues found in 1 source file"])
    mistaken = FOLDER / "mistaken_usage.py"
    mistaken.write_text(USAGE.read_text(encoding="utf-8").replace("content: str | None", "content: int"))
    said = 'expression has type "str | None", variable has type "int"'
    equal([said in line for line in checked(mistaken)[:1]], [True])


def checked(usage: Path) -> list[str]:
    """Return the lines in which mypy tells what is wrong with a file."""
    options = ["--strict", "--follow-imports=silent", "--config-file=", "--explicit-package-bases"]
    command = [sys.executable, "-m", "mypy", *options, f"--cache-dir={FOLDER / 'cache'}", str(usage)]
    environment = {**os.environ, "MYPYPATH": str(FOLDER)}
    return subprocess.run(command, capture_output=True, text=True, env=environment).stdout.splitlines()


@case("OpenAPI", "LMI's schema, OpenAI's chats, completions and embeddings, TGI, Triton's generate and infer, models")
def answered() -> None:
    equal(used().texts(hello(), HELLO, QUESTION), [ANSWER] * 6)
    equal(HELLO in used().names(hello()), True)
    equal(used().dimensions(hello(), HELLO) > 1, True)


@case("OpenAPI", "errors are typed, too")
def failed() -> None:
    equal(used().failure(hello()), ("invalid_request_error", "messages", 400))


@fault(
    "OpenAPI",
    "A status that Python's `HTTPStatus` lacks is a `ValueError`: 499, of a request that was aborted, and 529, of "
    "Anthropic's routes while the server is overloaded.",
    "Give `Client` a hook that calls the `raise_for_status` of such answers: "
    '`httpx_args={"event_hooks": {"response": [hook]}}`.',
)
def unusual_statuses() -> None:
    for status in (499, 529):
        answering = {"transport": httpx.MockTransport(lambda _, status=status: httpx.Response(status))}
        with raising(ValueError, f"{status} is not a valid HTTPStatus"):
            used().ask(hello(), answering)
        with raising(httpx.HTTPStatusError, str(status)):
            used().ask(hello(), {**answering, "event_hooks": {"response": [raise_unusual]}})


def raise_unusual(response: httpx.Response) -> None:
    if response.status_code in (499, 529):
        response.raise_for_status()


def used() -> Any:
    """Return the module that uses the generated client, which mypy checks."""
    generated()
    return importlib.import_module("tests.clients.programs.openapi_usage")
