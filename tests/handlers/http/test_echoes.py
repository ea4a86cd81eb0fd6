"""Errors and log lines repeat a bounded part of what a client sends, and the log no refused values at all."""

import json
import logging

import pytest

from tests.conftest import SCRIPTED, Answer, RunningServer
from tests.module_server import module_server

LONG = "x" * 1_000_000
DIGITS = "9" * 5000
MAX_ANSWER = 5000  # bytes
MAX_LINE = 2500  # characters
HEADERS = (
    *("x-request-id", "X-Amzn-SageMaker-Target-Model", "X-Amzn-SageMaker-Session-Id"),
    *("X-Amzn-SageMaker-Inference-Component", "X-Amzn-SageMaker-Adapter-Identifier"),
    *("Inference-Header-Content-Length", "Origin"),
)
# Routes of every dialect, each with a request that is answered.
REQUESTS: dict[str, dict[str, object]] = {
    "/invocations": {"inputs": "a"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2},
    "/v1/completions": {"prompt": "a"},
    "/v1/responses": {"input": "a"},
    "/v1/embeddings": {"input": "a"},
    "/v1/messages": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2},
    "/generate": {"inputs": "a"},
    "/generate_stream": {"inputs": "a"},
    "/v1/generate": {"prompt": "a"},
    "/v1/abort_request": {"request_id": "a"},
    "/v2/decode": {"tokens": [1]},
    "/tokenize": {"prompt": "a"},
    "/api/chat": {"messages": [{"role": "user", "content": "a"}]},
    "/api/generate": {"prompt": "a"},
    "/api/show": {"model": "model"},
    "/v2/models/model/generate": {"text_input": "a"},
    "/v2/models/model/infer": {"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["a"]}]},
    "/endpoints/mine/invocations": {"inputs": "a"},
    "/models/model/adapters": {"name": "a", "src": "a"},
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


server = module_server(SCRIPTED)


def bodies(known: dict[str, object]) -> list[bytes]:
    """Return bodies with a huge name, text or number at each place of a known one, and at places of their own."""
    others = ("model", "adapters", "parameters", "options", "logit_bias", "metadata", "user", "repetition_detection")
    names = [*known, *others]
    values: list[object] = [LONG, [LONG], {LONG: 1}, {DIGITS: 1}, "@digits", ["@digits"], {"a": "@digits"}, str(2**70)]
    changed = [{**known, name: value} for name in names for value in values]
    changed += [{**known, LONG: 1}, {**known, f"lora_{LONG}": 1}, {**known, "": {}}]
    return [json.dumps(each).replace('"@digits"', DIGITS).encode() for each in changed]


def check(answer: Answer, caplog: pytest.LogCaptureFixture, asked: object) -> None:
    assert answer.status < 500, asked
    assert answer.status < 400 or len(answer.body) <= MAX_ANSWER, asked
    assert max((len(record.getMessage()) for record in caplog.records), default=0) <= MAX_LINE, asked
    assert not any(record.exc_info for record in caplog.records), asked
    caplog.clear()


@pytest.mark.parametrize("path", REQUESTS)
async def test_huge_names_and_values(server: RunningServer, caplog: pytest.LogCaptureFixture, path: str) -> None:
    caplog.set_level(logging.INFO)
    headers = {"Content-Type": "application/json"}
    for body in bodies(REQUESTS[path]):
        check(await server.post(path, data=body, headers=headers), caplog, (path, body[:200]))


@pytest.mark.parametrize("path", REQUESTS)
async def test_huge_headers(server: RunningServer, caplog: pytest.LogCaptureFixture, path: str) -> None:
    caplog.set_level(logging.INFO)
    for header in HEADERS:
        check(await server.post(path, REQUESTS[path], headers={header: "h" * 7000}), caplog, (path, header))


async def test_name_is_cut_at_eighty_characters(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"inputs": "a", "adapters": LONG})
    assert f"`{'x' * 80}...`" in answer.json()["error"]
    answer = await server.post("/invocations", {"inputs": "a", "adapters": "y" * 80})
    assert f"`{'y' * 80}`" in answer.json()["error"]


async def test_refused_value_is_in_the_answer_and_not_in_the_log(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answer = await server.post("/v1/completions", {"prompt": "a", "max_tokens": "sk-secret"})
    assert "sk-secret" in answer.json()["error"]["message"]
    assert any("`max_tokens` must be a valid integer." in message for message in caplog.messages)
    assert not any("sk-secret" in message for message in caplog.messages)
