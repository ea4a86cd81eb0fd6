"""SageMaker's runtime on the wire; tests/clients/test_boto3.py has its client."""

from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer

from tests import golden
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

PROMPT = "What is Deep Learning?"
WHOLE = "/endpoints/mine/invocations"
STREAM = "/endpoints/mine/invocations-response-stream"


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


async def test_stream_is_the_model_s_own_within_events(server: RunningServer) -> None:
    body = {"inputs": PROMPT, "stream": True}
    plain = await server.post("/invocations", body)
    framed = await server.post(STREAM, body)
    assert framed.content_type == "application/vnd.amazon.eventstream"
    assert framed.headers["X-Amzn-SageMaker-Content-Type"] == plain.content_type
    buffer = EventStreamBuffer()
    buffer.add_data(framed.body)
    assert [event.payload for event in buffer] == plain.body.splitlines(keepends=True)


async def test_each_event_is_sent_when_its_token_is_there(server: RunningServer) -> None:
    body = {"inputs": PROMPT, "stream": True}
    async with server.client.post(STREAM, json=body) as response:
        writes = [data async for data, complete in response.content.iter_chunks() if complete]
    assert len(writes) == 7
    assert all(int.from_bytes(write[:4], "big") == len(write) for write in writes)


async def test_answers_in_the_server_s_own_words_have_its_error_type(server: RunningServer) -> None:
    answer = await server.post(STREAM, {"inputs": 5})
    assert (answer.status, answer.content_type) == (424, "application/json")
    assert answer.json() == {
        "__type": "ModelError",
        "Message": "`inputs` must be a valid string. Given: 5",
        "OriginalStatusCode": 424,
        "OriginalMessage": '{"error":"`inputs` must be a valid string. Given: 5","code":424}',
    }


def dialect(prompt: str, parameters: dict[str, Any], form: str) -> tuple[str, object]:
    parameters = {"details": True, "max_new_tokens": 6, **parameters}
    return (
        (STREAM, {"inputs": prompt, "stream": True, "parameters": parameters})
        if form == "stream"
        else (
            WHOLE,
            {"inputs": prompt, "parameters": parameters},
        )
    )


@pytest.mark.parametrize("case", golden.CASES)
@pytest.mark.parametrize("form", golden.FORMS)
async def test_golden_transcript(server: RunningServer, form: str, case: str) -> None:
    await golden.replay(server, "sagemaker", dialect, form, case)
