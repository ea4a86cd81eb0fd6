"""Sessions on LMI's routes, as SageMaker calls them in a container."""

import time
from typing import Any

import pytest

from lmi_core.calls import sessions
from lmi_core.errors import InvalidPayload, Overloaded
from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve

SESSION, NEW, CLOSED = (f"X-Amzn-SageMaker-{name}Session-Id" for name in ("", "New-", "Closed-"))
INPUTS = {"inputs": "Hi"}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


async def ask(server: RunningServer, body: dict[str, Any], session_id: str | None = None) -> Answer:
    return await server.post("/invocations", body, headers={SESSION: session_id} if session_id else None)


async def test_session(server: RunningServer) -> None:
    begun = await ask(server, {"requestType": "NEW_SESSION", "model": "model"})
    assert begun.headers[SESSION] == begun.headers[NEW]  # the first is DJLServing's
    session_id = begun.headers[NEW].partition(";")[0]
    chat = await ask(server, {"messages": [{"role": "user", "content": "Hi"}]}, session_id)
    assert chat.status == 200
    stream = await ask(server, INPUTS | {"stream": True}, session_id)
    assert (stream.status, NEW in stream.headers) == (200, False)
    closed = await ask(server, {"requestType": "CLOSE"}, session_id)
    assert (closed.status, closed.headers[CLOSED]) == (200, session_id)
    assert (await ask(server, INPUTS, session_id)).status == 424


async def test_stream_that_begins_a_session(server: RunningServer) -> None:
    answer = await ask(server, INPUTS | {"stream": True}, "NEW_SESSION")
    session_id, _, expires = answer.headers[NEW].partition("; ")
    assert expires.startswith("Expires=")
    assert (await ask(server, INPUTS, session_id)).status == 200


@pytest.mark.parametrize(
    ("body", "session_id", "message"),
    [
        ({"requestType": "OPEN"}, None, "`requestType` must be NEW_SESSION or CLOSE. Given: 'OPEN'"),
        (
            {"requestType": "CLOSE"},
            None,
            "`requestType` CLOSE needs the header X-Amzn-SageMaker-Session-Id, which names the session",
        ),
        (
            {"requestType": "CLOSE"},
            "x",
            "there is no session 'x': it was closed, has expired, or belongs to another server",
        ),
        ({"requestType": "CLOSE"} | INPUTS, "x", "`requestType` must be the only field: the session's requests follow"),
        (INPUTS, "x", "there is no session 'x'"),
    ],
)
async def test_refused(server: RunningServer, body: dict[str, Any], session_id: str | None, message: str) -> None:
    answer = await ask(server, body, session_id)
    assert (answer.status, answer.json()["error"].startswith(message)) == (424, True), answer.body
    assert server.scripted.history == []


async def test_sessions_that_are_turned_off(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.enable_stateful_sessions=false\n"}))
    for body, session_id in ((INPUTS, "NEW_SESSION"), ({"requestType": "NEW_SESSION"}, None)):
        answer = await ask(server, body, session_id)
        assert (answer.status, "option.enable_stateful_sessions=false" in answer.json()["error"]) == (424, True)
    assert (await ask(server, INPUTS)).status == 200


async def test_expiration(serve: Serve, model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.sessions_expiration=60\n"}))
    monkeypatch.setattr("lmi_core.calls.sessions.time", lambda: 1_000_000_000.0)
    begun = await ask(server, {"requestType": "NEW_SESSION"})
    session_id, _, expires = begun.headers[NEW].partition("; ")
    assert expires == "Expires=2001-09-09T01:47:40Z"
    now = time.monotonic()
    monkeypatch.setattr("lmi_core.calls.sessions.time", lambda: 2_000_000_000.0)  # the clock is set
    monkeypatch.setattr("lmi_core.calls.sessions.monotonic", lambda: now + 50)
    assert (await ask(server, INPUTS, session_id)).status == 200
    monkeypatch.setattr("lmi_core.calls.sessions.monotonic", lambda: now + 60)
    assert (await ask(server, INPUTS, session_id)).status == 424


def test_there_are_not_more_sessions_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 2)
    opened = sessions.Sessions(60)
    first, second = opened.begin(), opened.begin()
    with pytest.raises(Overloaded, match="there are 2 open sessions"):
        opened.begin()
    opened.end(first.session_id)
    opened.check(opened.begin().session_id)
    opened.check(second.session_id)
    with pytest.raises(InvalidPayload):
        opened.check(first.session_id)


def test_one_key_leaves_sessions_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 8)
    opened = sessions.Sessions(60)
    greedy = [opened.begin("greedy") for _ in range(4)]
    with pytest.raises(Overloaded, match="this key has 4 open sessions"):
        opened.begin("greedy")
    for key in ("one", "another"):
        opened.begin(key)
    opened.end(greedy[0].session_id, "greedy")
    opened.end(greedy[1].session_id, "greedy")
    assert opened.begin("greedy").key == "greedy"
