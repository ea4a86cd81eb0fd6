"""What is kept by an id belongs to the API key that made it: for other keys it is as if there were none."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio

from lmi_handlers.access.api_keys import ApiKeys
from lmi_handlers.access.credentials import Secret
from lmi_handlers.access.options import AccessOptions
from lmi_handlers.testing import running_server
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, Answer, RunningServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN, OTHER, OPERATOR = ({"Authorization": f"Bearer {key}"} for key in ("sk-own", "sk-other", "token-of-operators"))
PATH = "/v1/responses"
UNKNOWN = "resp_0123456789abcdef0123456789abcdef"
SESSION = "X-Amzn-SageMaker-Session-Id"
Headers = dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    directory = tmp_path_factory.mktemp("keys") / "model"
    directory.mkdir()
    (directory / "serving.properties").write_text(SCRIPTED)
    keys = ApiKeys(["own sk-own", "sk-other"])  # one without a name
    access = AccessOptions(api_keys=keys, management_token=Secret.of("token-of-operators"))
    async with running_server(directory, access=access) as running:
        yield running


async def respond(server: RunningServer, headers: Headers, **fields: Any) -> dict[str, Any]:
    answer = await server.post(PATH, {"input": "What is it?"} | fields, headers=headers)
    assert answer.status == 200, answer.body
    response: dict[str, Any] = answer.json()
    return response


async def ask_for(server: RunningServer, method: str, path: str, headers: Headers) -> Answer:
    async with server.client.request(method, path, headers=headers) as response:
        return Answer(response.status, response.headers, await response.read())


ROUTES = (("GET", ""), ("GET", "/input_items"), ("POST", "/cancel"), ("DELETE", ""))


@pytest.mark.parametrize(("method", "rest"), ROUTES)
async def test_a_response_of_another_key_is_unknown(server: RunningServer, method: str, rest: str) -> None:
    response_id = (await respond(server, OWN))["id"]
    refused = await ask_for(server, method, f"{PATH}/{response_id}{rest}", OTHER)
    unknown = await ask_for(server, method, f"{PATH}/{UNKNOWN}{rest}", OTHER)
    assert refused.status == unknown.status == 404
    assert refused.body.replace(response_id.encode(), UNKNOWN.encode()) == unknown.body
    assert (await ask_for(server, "GET", f"{PATH}/{response_id}", OWN)).json()["id"] == response_id
    assert (await ask_for(server, "GET", f"{PATH}/{response_id}", OPERATOR)).json()["id"] == response_id
    assert (await ask_for(server, "DELETE", f"{PATH}/{response_id}", OWN)).json()["deleted"]


async def test_a_key_without_a_name_has_its_own(server: RunningServer) -> None:
    response_id = (await respond(server, OTHER))["id"]
    assert (await ask_for(server, "GET", f"{PATH}/{response_id}", OTHER)).status == 200
    assert (await ask_for(server, "GET", f"{PATH}/{response_id}", OWN)).status == 404


async def test_what_an_operator_made_is_no_clients(server: RunningServer) -> None:
    response_id = (await respond(server, OPERATOR))["id"]
    assert (await ask_for(server, "GET", f"{PATH}/{response_id}", OWN)).status == 404
    assert (await ask_for(server, "GET", f"{PATH}/{response_id}", OPERATOR)).status == 200


@pytest.mark.parametrize("path", [PATH, f"{PATH}/input_tokens"])
async def test_nobody_goes_on_from_a_response_of_another_key(server: RunningServer, path: str) -> None:
    response = await respond(server, OWN)
    item_id = response["output"][0]["id"]
    refused = await server.post(path, {"input": "x", "previous_response_id": response["id"]}, headers=OTHER)
    unknown = await server.post(path, {"input": "x", "previous_response_id": UNKNOWN}, headers=OTHER)
    assert refused.status == unknown.status == 404
    assert refused.body.replace(response["id"].encode(), UNKNOWN.encode()) == unknown.body
    referring = {"input": [{"type": "item_reference", "id": item_id}, {"role": "user", "content": "x"}]}
    assert (await server.post(path, referring, headers=OTHER)).status == 404
    assert (await server.post(path, referring, headers=OWN)).status == 200
    going_on = {"input": "x", "previous_response_id": response["id"]}
    assert (await server.post(path, going_on, headers=OWN)).status == 200


async def test_a_running_response_of_another_key_is_unknown_too(server: RunningServer) -> None:
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    asked = {"input": "x", "stream": True}
    async with server.client.post(PATH, json=asked, headers=OWN) as streamed:
        await streamed.content.readline()
        created = orjson.loads((await streamed.content.readline()).removeprefix(b"data: "))["response"]
        await script.started.wait()
        path = f"{PATH}/{created['id']}"
        assert (await ask_for(server, "GET", path, OTHER)).status == 404
        assert (await ask_for(server, "POST", f"{path}/cancel", OTHER)).status == 404
        assert not script.closed.is_set()
        assert (await ask_for(server, "GET", path, OWN)).json()["status"] == "in_progress"
        assert (await ask_for(server, "POST", f"{path}/cancel", OWN)).json()["status"] == "cancelled"
        await streamed.read()
    assert (await ask_for(server, "GET", path, OTHER)).status == 404


async def test_a_session_of_another_key_is_unknown(server: RunningServer) -> None:
    begun = await server.post("/invocations", {"requestType": "NEW_SESSION"}, headers=OWN)
    session_id = begun.headers["X-Amzn-SageMaker-New-Session-Id"].partition(";")[0]
    for body in ({"inputs": "Hi"}, {"requestType": "CLOSE"}):
        refused = await server.post("/invocations", body, headers={**OTHER, SESSION: session_id})
        assert "there is no session" in refused.body.decode()
        assert refused.status >= 400
    for body in ({"inputs": "Hi"}, {"requestType": "CLOSE"}):
        assert (await server.post("/invocations", body, headers={**OWN, SESSION: session_id})).status == 200
