import logging
import re

import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import ModelDirectory, Serve

LOGGER = "lmi_core.metrics.request_record"
LINE = re.compile(
    r"request (\S+): (\d+) prompt tokens, (\d+) generated tokens, first token after ([\d.]+) ms, all after ([\d.]+) ms"
)
PROPERTIES = "option.rolling_batch=scripted\noption.scripted_text=one two three\noption.scripted_delay=0.01\n"
LOGS = PROPERTIES + "log_request_metric=true\n"
PAYLOAD = {"inputs": "a few words", "parameters": {"max_new_tokens": 3}}


@pytest.mark.parametrize("stream", [True, False])
async def test_each_request_is_logged(
    serve: Serve, model_dir: ModelDirectory, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    server = await serve(model_dir({"serving.properties": LOGS}))
    answer = await server.post("/invocations", {**PAYLOAD, "stream": stream}, headers={"x-request-id": "r1"})
    assert answer.status == 200
    (found,) = [LINE.fullmatch(record.message) for record in caplog.records if LINE.fullmatch(record.message)]
    assert found is not None
    request_id, prompt_tokens, generated, first, last = found.groups()
    assert (request_id, prompt_tokens, generated) == ("r1", "3", "3")
    assert 0 < float(first) < float(last)


async def test_embeddings_are_logged(serve: Serve, model_dir: ModelDirectory, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    server = await serve(model_dir({"serving.properties": LOGS + "option.task=text-embedding\n"}))
    answer = await server.post("/v1/embeddings", {"input": ["a b", "c"]}, headers={"x-request-id": "r2"})
    assert answer.status == 200
    assert re.search(r"request r2: 3 prompt tokens, all after [\d.]+ ms", caplog.text)


async def test_a_request_that_is_left_is_logged(
    serve: Serve, model_dir: ModelDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    server = await serve(model_dir({"serving.properties": LOGS}))
    script = Script("one", hold=True)
    server.scripted.enqueue(script)
    pieces = server.pieces("/invocations", {**PAYLOAD, "stream": True}, headers={"x-request-id": "left"})
    await anext(pieces)
    await pieces.aclose()
    await script.closed.wait()
    assert (await server.post("/invocations", PAYLOAD)).status == 200  # by when the first has ended
    assert "request left: 3 prompt tokens, 1 generated tokens" in caplog.text


async def test_nothing_is_logged_unless_it_is_asked_for(
    serve: Serve, model_dir: ModelDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    server = await serve(model_dir({"serving.properties": PROPERTIES}))
    assert (await server.post("/invocations", PAYLOAD)).status == 200
    assert LOGGER not in {record.name for record in caplog.records}
