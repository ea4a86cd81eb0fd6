"""Responses that are kept: read, gone on from, referred to, deleted and cancelled, within their bound."""

import asyncio
from typing import Any

import orjson
import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve
from tests.handlers.responses.asking import (
    CALL,
    PATH,
    TEXT,
    WEATHER,
    ask,
    kinds,
    messages,
    respond,
    serve_with,
    stream,
)


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve_with(serve, model_dir, "option.tool_call_parser=hermes\n")


async def delete(server: RunningServer, path: str) -> Answer:
    async with server.client.delete(path) as response:
        return Answer(response.status, response.headers, await response.read())


def error(answer: Answer, status: int) -> dict[str, Any]:
    assert answer.status == status, answer.body
    found: dict[str, Any] = answer.json()["error"]
    return found


async def test_read_and_delete(server: RunningServer) -> None:
    response = await respond(server)
    path = f"{PATH}/{response['id']}"
    assert (await server.get(path)).json() == response
    assert (await delete(server, path)).json() == {"id": response["id"], "object": "response", "deleted": True}
    for gone in (await server.get(path), await delete(server, path), await server.get(f"{path}/input_items")):
        assert error(gone, 404) == {
            "message": f"Response with id '{response['id']}' not found: it was not stored, or has been removed",
            "type": "invalid_request_error",
            "param": None,
            "code": "response_not_found",
        }
    assert len(server.model.conversations) == 0


async def test_streamed_response_is_kept_too(server: RunningServer) -> None:
    response = (await stream(server))[-1]["response"]
    assert (await server.get(f"{PATH}/{response['id']}")).json() == response
    assert error(await server.get(f"{PATH}/{response['id']}?stream=true"), 400)["param"] == "stream"


async def test_a_conversation_goes_on(server: RunningServer) -> None:
    first = await respond(server, "one", instructions="Only once.")
    second = await respond(server, [{"role": "user", "content": "two"}], previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    found = await messages(server, "three", previous_response_id=second["id"], instructions="Again.")
    said = [(message["role"], message["content"]) for message in found]
    answer = ("assistant", TEXT)
    assert said == [("system", "Again."), ("user", "one"), answer, ("user", "two"), answer, ("user", "three")]
    assert [message["content"] for message in await messages(server, "x", previous_response_id=first["id"])] == [
        "one",
        TEXT,
        "x",
    ]


async def test_call_and_result_in_two_requests(server: RunningServer) -> None:
    server.scripted.enqueue(Script(f"Let me see. {CALL}"))
    first = await respond(server, "Weather?", tools=[WEATHER])
    call = first["output"][1]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    found = await messages(server, [result], previous_response_id=first["id"])
    assert [message["role"] for message in found] == ["user", "assistant", "tool"]
    assert found[1]["tool_calls"][0]["id"] == found[2]["tool_call_id"] == call["call_id"]
    assert error(await ask(server, [result]), 400)["param"] == "input.0.call_id"


async def test_references_to_items(server: RunningServer) -> None:
    first = await respond(server, "one")
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    found = await messages(server, [{"role": "user", "content": "one"}, reference, {"role": "user", "content": "two"}])
    assert [message["content"] for message in found] == ["one", TEXT, "two"]
    found = await messages(server, [{"id": reference["id"]}, {"role": "user", "content": "x"}], store=False)
    assert [message["content"] for message in found] == [TEXT, "x"]
    await delete(server, f"{PATH}/{first['id']}")
    gone = error(await ask(server, [reference]), 404)
    assert (gone["param"], gone["code"]) == ("input.0.id", "response_not_found")


async def test_an_id_that_a_client_gives_an_item_leads_nowhere(server: RunningServer) -> None:
    await respond(server, [{"type": "message", "role": "user", "content": "secret", "id": "msg_1"}])
    assert error(await ask(server, [{"type": "item_reference", "id": "msg_1"}]), 404)["param"] == "input.0.id"


async def test_not_stored(server: RunningServer) -> None:
    response = await respond(server, store=False)
    assert response["store"] is False
    assert (await server.get(f"{PATH}/{response['id']}")).status == 404
    lost = error(await ask(server, previous_response_id=response["id"]), 404)
    assert (lost["code"], lost["param"]) == ("previous_response_not_found", "previous_response_id")
    assert lost["message"] == (
        f"Previous response with id '{response['id']}' not found: it does not belong to model `model`, was not stored, "
        "was deleted, or was removed for newer ones"
    )
    assert len(server.model.conversations) == 0


async def test_going_on_from_a_kept_response_without_keeping_the_next(server: RunningServer) -> None:
    first = await respond(server)
    second = await respond(server, previous_response_id=first["id"], store=False)
    assert second["previous_response_id"] == first["id"]
    assert list(server.model.conversations) == [first["id"]]


async def test_nothing_is_kept_if_told_so(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "option.response_store_size=0\n")
    response = await respond(server, store=True)
    assert response["store"] is False
    lost = error(await ask(server, previous_response_id=response["id"]), 404)
    assert "option.response_store_size=0 stores no responses" in lost["message"]


async def test_memory_is_bounded(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "option.response_store_size=20000\n")
    latest = await respond(server, "word " * 200)
    for _ in range(20):
        latest = await respond(server, "word " * 200)
    kept = server.model.conversations
    assert 0 < kept.size <= 20000
    assert (await server.get(f"{PATH}/{latest['id']}")).status == 200
    assert len(kept) == 20000 // (kept.size // len(kept))


async def test_a_conversation_is_no_longer_than_a_request_may_be(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "max_request_size=4000\n")
    latest = await respond(server, "word " * 200)
    latest = await respond(server, "word " * 200, previous_response_id=latest["id"])
    lost = error(await ask(server, previous_response_id=latest["id"]), 413)
    assert lost["message"].startswith(
        "`previous_response_id` must belong to a conversation of at most 4000 bytes (max_request_size). Given: "
    )


async def test_items_of_the_input(server: RunningServer) -> None:
    first = await respond(server, "one")
    parts = [{"type": "input_text", "text": "two"}]
    second = await respond(
        server, [{"role": "user", "content": parts, "id": "msg_mine"}], previous_response_id=first["id"]
    )
    path = f"{PATH}/{second['id']}/input_items"
    listed = (await server.get(path)).json()
    assert [item["type"] for item in listed["data"]] == ["message"] * 3
    newest, answer, oldest = listed["data"]
    assert newest == {"type": "message", "id": "msg_mine", "status": "completed", "role": "user", "content": parts}
    assert (answer, oldest["content"][0]["text"]) == (first["output"][0], "one")
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("msg_mine", oldest["id"], False)
    page = (await server.get(f"{path}?order=asc&limit=2")).json()
    assert (page["data"], page["has_more"]) == ([oldest, answer], True)
    rest = (await server.get(f"{path}?order=asc&limit=2&after={page['last_id']}")).json()
    assert (rest["data"], rest["has_more"]) == ([newest], False)
    assert (await server.get(f"{path}?after=msg_mine")).json()["data"] == [answer, oldest]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("order=up", "`order` must be asc or desc. Given: 'up'"),
        ("limit=0", "`limit` must be an integer from 1 to 100. Given: '0'"),
        ("limit=101", "`limit` must be an integer from 1 to 100. Given: '101'"),
        ("limit=0000000010", "`limit` must be an integer from 1 to 100. Given: '0000000010'"),
        (f"limit={'0' * 8}1{'0' * 5000}", "`limit` must be an integer from 1 to 100. Given: '000000001"),
        ("limit=many", "`limit` must be an integer from 1 to 100. Given: 'many'"),
        ("after=zzz", "`after` must be the id of one of the items. Given: 'zzz'"),
    ],
)
async def test_wrong_pages(server: RunningServer, query: str, message: str) -> None:
    response = await respond(server)
    answer = await server.get(f"{PATH}/{response['id']}/input_items?{query}")
    assert error(answer, 400)["message"].startswith(message)


async def test_cancelling_a_stream(server: RunningServer) -> None:
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    async with server.client.post(PATH, json={"input": "x", "stream": True}) as streamed:
        await streamed.content.readline()
        created = orjson.loads((await streamed.content.readline()).removeprefix(b"data: "))["response"]
        await script.started.wait()
        path = f"{PATH}/{created['id']}"
        running = (await server.get(path)).json()
        assert (running["status"], running["output"][0]["status"]) == ("in_progress", "in_progress")
        cancelled = (await server.post(f"{path}/cancel")).json()
        assert (cancelled["id"], cancelled["status"]) == (created["id"], "cancelled")
        assert cancelled["output"][0]["status"] == "incomplete"
        last = (await streamed.read()).split(b"\n\n")[-2]
    assert script.closed.is_set()
    name, data = last.split(b"\n")
    response = orjson.loads(data.removeprefix(b"data: "))["response"]
    assert (name, response["status"]) == (b"event: response.incomplete", "cancelled")
    assert response["output"][0]["content"][0]["text"] == "one two"
    assert (await server.get(path)).json() == response
    ended = error(await server.post(f"{path}/cancel"), 400)
    assert ended["message"] == "Cannot cancel a synchronous response, or one that has ended"
    assert error(await server.post(f"{PATH}/resp_none/cancel"), 404)["code"] == "response_not_found"


async def test_cancelling_one_of_several_requests_of_a_name(server: RunningServer) -> None:
    """Agents and gateways give all requests of one task the same id."""
    going_on, cancelled = scripts = [Script("one two", hold=True) for _ in range(2)]
    server.scripted.enqueue(*scripts)
    headers = {"x-request-id": "mine"}
    body = {"input": "x", "stream": True}
    async with server.client.post(PATH, json=body, headers=headers) as other:
        await going_on.started.wait()
        async with server.client.post(PATH, json=body, headers=headers) as streamed:
            await streamed.content.readline()
            created = orjson.loads((await streamed.content.readline()).removeprefix(b"data: "))["response"]
            await cancelled.started.wait()
            assert (await server.post(f"{PATH}/{created['id']}/cancel")).status == 200
            assert b'"cancelled"' in await streamed.read()
        assert (cancelled.closed.is_set(), going_on.closed.is_set()) == (True, False)
        await other.content.readline()
        kept = orjson.loads((await other.content.readline()).removeprefix(b"data: "))["response"]
        assert (await server.get(f"{PATH}/{kept['id']}")).json()["status"] == "in_progress"


async def test_a_client_that_leaves_a_stream_leaves_nothing_behind(server: RunningServer) -> None:
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    async with server.client.post(PATH, json={"input": "x", "stream": True}) as streamed:
        await streamed.content.readline()
    await script.closed.wait()
    assert (len(server.model.conversations), server.model.conversations.size) == (0, 0)
    async with asyncio.timeout(30):
        while server.model.conversations.running:  # held by the request's task until it has ended
            await asyncio.sleep(0.01)


async def test_several_models(serve: Serve, model_dir: ModelDirectory) -> None:
    store = model_dir({"serving.properties": SCRIPTED}, name="store/one").parent
    model_dir({"serving.properties": SCRIPTED}, name="store/two")
    server = await serve(store)
    first, second = [await respond(server, model=name) for name in ("one", "two")]
    for response in (first, second):
        assert (await server.get(f"{PATH}/{response['id']}")).json() == response
    assert (await ask(server, model="two", previous_response_id=second["id"])).status == 200
    lost = error(await ask(server, model="two", previous_response_id=first["id"]), 404)
    assert "not found: it does not belong to model `two`" in lost["message"]
    assert (await delete(server, f"{PATH}/{first['id']}")).status == 200


async def test_kinds_of_items_survive_the_store(server: RunningServer) -> None:
    server.scripted.enqueue(Script(f"Let me see. {CALL}"))
    given: list[Any] = [
        {"role": "system", "content": "Be kind."},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        {"role": "user", "content": "And in Paris?"},
    ]
    first = await respond(server, given, tools=[WEATHER])
    direct = await messages(server, [*given, *first["output"], {"role": "user", "content": "x"}])
    assert await messages(server, "x", previous_response_id=first["id"]) == direct
    listed = (await server.get(f"{PATH}/{first['id']}/input_items?order=asc")).json()["data"]
    assert kinds(listed) == ["message", "reasoning", "function_call", "function_call_output", "message"]
