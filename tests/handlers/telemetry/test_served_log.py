"""The log of `lmi serve` in a process of its own, as a collector reads it."""

import json
from pathlib import Path

import aiohttp
import pytest

from tests.conftest import SCRIPTED, ModelDirectory
from tests.lmi_process import lmi, lmi_serve


@pytest.mark.parametrize(
    ("arguments", "environment", "logs_requests"),
    [(["--log-format", "json"], {}, True), ([], {"SERVING_LOG_FORMAT": "json", "SERVING_ACCESS_LOG": "false"}, False)],
)
async def test_every_line_is_json(
    model_dir: ModelDirectory, arguments: list[str], environment: dict[str, str], logs_requests: bool
) -> None:
    directory = model_dir({"serving.properties": SCRIPTED})
    async with lmi_serve(directory, "--port", 0, *arguments, environment=environment) as server:
        ready = json.loads(await server.line_with("Ready"))
        url = next(word for word in ready["message"].split() if word.startswith("http://"))
        async with aiohttp.ClientSession(url) as client:
            headers = {"x-request-id": "r1"}
            async with client.post("/invocations", json={"inputs": "a b"}, headers=headers) as answer:
                assert answer.status == 200
        server.process.terminate()
        _, rest = await server.process.communicate()
    lines = [json.loads(line) for line in [*server.log, *rest.decode().splitlines()]]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    found = [line for line in lines if line.get("request_id") == "r1"]
    assert len(found) == int(logs_requests)
    if found:
        assert (found[0]["prompt_tokens"], found[0]["status"], found[0]["model"]) == (2, 200, "model")


def test_the_reason_of_a_failed_start_is_json_too(tmp_path: Path) -> None:
    """The last line is the one that matters, and collectors read no other form."""
    result = lmi("serve", tmp_path / "missing", "--log-format", "json")
    last = json.loads(result.stderr.splitlines()[-1])
    assert (result.returncode, last["level"]) == (2, "critical")
    assert last["message"].startswith(f"{tmp_path / 'missing'} does not exist: ")
