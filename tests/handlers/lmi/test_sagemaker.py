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


ADAPTED = """\
from djl_python.output_formatter import output_formatter


@output_formatter
def change(response_data: dict) -> dict:
    return response_data | {"by": "french"}
"""


async def test_component_of_another_name_is_the_model_s_own(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED, "adapters/french/model.py": ADAPTED}))
    for component, by, told in (
        ("french", "french", None),
        ("base", None, "InferenceComponentName"),
        ("model", None, None),
    ):
        headers = {"X-Amzn-SageMaker-Inference-Component": component}
        answer = await server.post(WHOLE, {"inputs": PROMPT}, headers=headers)
        assert (answer.status, answer.json().get("by")) == (200, by)
        assert answer.headers.get("X-Lmi-Ignored-Parameters") == told


async def test_component_of_a_model_without_adapters_is_not_told(server: RunningServer) -> None:
    headers = {"X-Amzn-SageMaker-Inference-Component": "base"}
    answer = await server.post(WHOLE, {"inputs": PROMPT}, headers=headers)
    assert (answer.status, "X-Lmi-Ignored-Parameters" in answer.headers) == (200, False)


async def test_variant_is_told_by_answers_only_where_it_was_asked_for(server: RunningServer) -> None:
    header = "x-Amzn-Invoked-Production-Variant"
    asked = await server.post(WHOLE, {"inputs": PROMPT}, headers={"X-Amzn-SageMaker-Target-Variant": "blue"})
    assert asked.headers[header] == "blue"
    assert header not in (await server.post(WHOLE, {"inputs": PROMPT})).headers


@pytest.mark.parametrize("path", ["/invocations", WHOLE])
async def test_headers_of_asynchronous_endpoints(server: RunningServer, path: str) -> None:
    """Each names the request, and such endpoints take only answers of a known length."""
    headers = {
        "X-Amzn-SageMaker-Inference-Id": "of-mine",
        "X-Amzn-SageMaker-InputLocation": "s3://bucket/request.json",
        "X-Amzn-SageMaker-RequestTTLSeconds": "60",
    }
    answer = await server.post(path, {"inputs": PROMPT}, headers=headers)
    assert (answer.status, answer.headers["x-request-id"]) == (200, "of-mine")
    assert int(answer.headers["Content-Length"]) == len(answer.body)
    assert "Transfer-Encoding" not in answer.headers
    named = await server.post(path, {"inputs": PROMPT}, headers=headers | {"x-request-id": "a"})
    assert named.headers["x-request-id"] == "a"


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
