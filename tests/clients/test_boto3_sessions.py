"""Stateful sessions, with boto3's client of SageMaker's runtime."""

import asyncio
import json
import re
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lmi_plugins.backends.scripted import Script
from tests.clients.test_boto3 import INPUTS, STREAM, TEXT, Endpoint, EndpointOf, endpoint_of
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

__all__ = ["endpoint_of"]  # a fixture

NEW, CLOSE = {"requestType": "NEW_SESSION"}, {"requestType": "CLOSE"}
FUNCTION = """\
from djl_python import Output


def handle(inputs):
    if inputs.is_empty():
        return None
    output = Output().add_as_json({"session": inputs.get_property("X-Amzn-SageMaker-Session-Id")})
    return output.add_property("X-Amzn-SageMaker-New-Session-Id", "mine; Expires=2030-01-01T00:00:00Z")
"""


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


@pytest.fixture
def endpoint(server: RunningServer, endpoint_of: EndpointOf) -> Endpoint:
    return endpoint_of(server)


async def invoke(endpoint: Endpoint, body: object, session_id: str | None = None) -> tuple[dict[str, Any], Any]:
    """Return boto3's response and the JSON of its body."""

    def call() -> tuple[dict[str, Any], Any]:
        session = {} if session_id is None else {"SessionId": session_id}
        answer = endpoint.client.invoke_endpoint(
            EndpointName="mine", Body=json.dumps(body), ContentType="application/json", **session
        )
        return {**answer}, json.loads(answer["Body"].read())

    return await asyncio.to_thread(call)


async def begin(endpoint: Endpoint) -> str:
    answer, content = await invoke(endpoint, NEW, "NEW_SESSION")
    session_id, _, expires = answer["NewSessionId"].partition("; ")
    assert re.fullmatch(r"Expires=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", expires)
    assert content == {"result": f"Session {session_id} created"}
    return str(session_id)


async def test_session_from_its_begin_to_its_end(endpoint: Endpoint) -> None:
    session_id = await begin(endpoint)
    answer, content = await invoke(endpoint, INPUTS, session_id)
    assert (content, "NewSessionId" in answer) == ({"generated_text": TEXT}, False)
    closed, content = await invoke(endpoint, CLOSE, session_id)
    assert (closed["ClosedSessionId"], content) == (session_id, {"result": f"Session {session_id} closed"})
    with pytest.raises(ClientError, match="there is no session") as raised:
        await invoke(endpoint, INPUTS, session_id)
    assert raised.value.response["Error"].get("Code") == "ModelError"


async def test_stream_within_a_session(endpoint: Endpoint) -> None:
    session_id = await begin(endpoint)
    _, parts = await endpoint.stream(INPUTS | STREAM, SessionId=session_id)
    assert json.loads(parts[-1])["generated_text"] == TEXT
    with pytest.raises(ClientError, match="there is no session"):
        await endpoint.stream(INPUTS | STREAM, SessionId="unknown")


async def test_session_that_begins_with_a_question(endpoint: Endpoint) -> None:
    answer, content = await invoke(endpoint, INPUTS, "NEW_SESSION")
    assert content == {"generated_text": TEXT}
    assert (await invoke(endpoint, INPUTS, answer["NewSessionId"].partition(";")[0]))[1] == content


@pytest.mark.parametrize(("body", "session_id"), [(NEW, "NEW_SESSION"), (INPUTS | STREAM, "NEW_SESSION"), (CLOSE, "x")])
async def test_no_session_begins_or_ends_in_a_stream(
    server: RunningServer, endpoint: Endpoint, body: dict[str, Any], session_id: str
) -> None:
    with pytest.raises(ClientError, match="sessions are opened and closed by InvokeEndpoint"):
        await endpoint.stream(body, SessionId=session_id)
    assert server.scripted.history == []


async def test_session_that_expires(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    session_id = await begin(endpoint)
    monkeypatch.setattr("lmi_core.calls.sessions.monotonic", lambda: 1e12)
    with pytest.raises(ClientError, match="there is no session"):
        await invoke(endpoint, INPUTS, session_id)


async def test_session_of_a_failed_request(server: RunningServer, endpoint: Endpoint) -> None:
    session_id = await begin(endpoint)
    server.scripted.enqueue(Script("Deep", error="the engine fell over"))
    with pytest.raises(ClientError, match="the engine fell over"):
        await invoke(endpoint, INPUTS, session_id)
    assert (await invoke(endpoint, INPUTS, session_id))[1] == {"generated_text": TEXT}


async def test_sessions_of_a_model_function(
    serve: Serve,
    model_dir: ModelDirectory,
    endpoint_of: EndpointOf,
) -> None:
    endpoint = endpoint_of(await serve(model_dir({"serving.properties": "", "model.py": FUNCTION})))
    answer, content = await invoke(endpoint, {}, "NEW_SESSION")
    assert content == {"session": "NEW_SESSION"}
    assert answer["NewSessionId"] == "mine; Expires=2030-01-01T00:00:00Z"
