"""`lmi generate`, as a person runs it."""

import asyncio
import re
import subprocess

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.handlers.cli.test_cli import LMI, lmi

SAYS = SCRIPTED + "option.scripted_text=It is warm.\n"
STATISTICS = re.compile(r"3 tokens, [\d.]+ tokens/s, the first after [\d.]+ s\n")


def test_text_and_statistics(model_dir: ModelDirectory) -> None:
    result = lmi("generate", model_dir({"serving.properties": SAYS}), "Hello")
    assert (result.returncode, result.stdout) == (0, "It is warm.\n")
    assert STATISTICS.fullmatch(result.stderr)


def test_limits_and_options(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SAYS})
    result = lmi("generate", directory, "Hello", "--max-tokens", 2, "-o", "option.scripted_text=No, it is not.")
    assert result.stdout == "No, it\n"
    assert result.stderr.endswith("\nthe limit of tokens was reached before the end: --max-tokens sets another\n")


def test_prompt_of_standard_input(model_dir: ModelDirectory) -> None:
    command = [str(LMI), "generate", str(model_dir({"serving.properties": SAYS})), "-", "--chat"]
    result = subprocess.run(command, input="Hello", capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "It is warm.\n")


async def test_a_server_elsewhere(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SAYS}))
    for url in (server.server.url, server.server.url + "/v1"):
        process = await asyncio.create_subprocess_exec(
            LMI, "generate", url, "Hello", "--chat", "--model", "model", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        assert (process.returncode, out.decode()) == (0, "It is warm.\n")
    assert server.scripted.history[-1].prompt.startswith("user: Hello")


@pytest.mark.parametrize(
    ("target", "arguments", "status", "message"),
    [
        ("http://127.0.0.1:1", [], 1, "the server does not answer: "),
        ("http://127.0.0.1:1", ["-o", "option.dtype=bf16"], 2, "-o is for models that this command serves itself, not"),
        (
            "nowhere",
            [],
            2,
            "nowhere does not exist: give the path of a model directory or of an archive, an s3:// URL, ",
        ),
    ],
)
def test_no_model(target: str, arguments: list[str], status: int, message: str) -> None:
    result = lmi("generate", target, "Hello", *arguments)
    assert (result.returncode, result.stdout) == (status, "")
    assert result.stderr.startswith(f"lmi: {message}")


def test_request_that_is_refused(model_dir: ModelDirectory) -> None:
    result = lmi("generate", model_dir({"serving.properties": SAYS}), "Hello", "--model", "other")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("lmi: model `other` is not served.")


def test_several_models(model_dir: ModelDirectory) -> None:
    store = model_dir({"serving.properties": SAYS}, "store/one").parent
    model_dir({"serving.properties": SAYS}, "store/two")
    result = lmi("generate", store, "Hello")
    assert (result.returncode, result.stderr) == (
        2,
        f"lmi: {store} contains several models: give the directory of one\n",
    )


def test_help() -> None:
    result = lmi("generate", "--help")
    assert all(word in result.stdout for word in ("--chat", "--max-tokens", "--temperature", "--model", "-o"))
