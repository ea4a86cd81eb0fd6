"""`lmi generate`, as a person runs it."""

import asyncio
import re
import subprocess

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.lmi_process import LMI, lmi

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


@pytest.mark.parametrize(
    ("arguments", "given", "prompt"),
    [
        (["-"], "Hello", "Hello"),
        ([], "Hello\n", "Hello"),
        (["-"], "Hello\r\n", "Hello"),
        ([], "Hello\n\n", "Hello\n"),
    ],
)
async def test_prompt_of_standard_input(
    serve: Serve, model_dir: ModelDirectory, arguments: list[str], given: str, prompt: str
) -> None:
    server = await serve(model_dir({"serving.properties": SAYS}))
    result = await asyncio.to_thread(lmi, "generate", server.server.url, *arguments, given=given)
    assert (result.returncode, result.stdout) == (0, "It is warm.\n")
    assert server.scripted.history[-1].prompt == prompt


def test_text_comes_before_the_statistics(model_dir: ModelDirectory) -> None:
    command = [str(LMI), "generate", str(model_dir({"serving.properties": SAYS})), "Hello"]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert result.stdout.startswith("It is warm.\n3 tokens, ")


async def test_a_server_elsewhere(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SAYS}))
    for url in (server.server.url, server.server.url + "/v1"):
        result = await asyncio.to_thread(lmi, "generate", url, "Hello", "--chat", "--model", "model")
        assert (result.returncode, result.stdout) == (0, "It is warm.\n")
    assert server.scripted.history[-1].prompt.startswith("user: Hello")


@pytest.mark.parametrize(
    ("target", "arguments", "status", "message"),
    [
        ("http://127.0.0.1:1", [], 1, "no server answers at 127.0.0.1:1: Connection refused\n"),
        ("http://127.0.0.1:99999", [], 2, "http://127.0.0.1:99999: Port out of range 0-65535"),
        ("http://127.0.0.1:1", ["-o", "option.dtype=bf16"], 2, "-o is for models that this command serves itself, not"),
        (
            "127.0.0.1:1",
            [],
            2,
            "127.0.0.1:1 does not exist: for the server at that address, give http://127.0.0.1:1\n",
        ),
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
