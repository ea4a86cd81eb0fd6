"""Anthropic's list of models, at the route that OpenAI's clients read in their own form."""

from typing import Any

import pytest

from tests.conftest import SCRIPTED, RunningServer
from tests.module_server import module_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = ["uno", "one", "two", "french"]


server = module_server(
    {
        "one/serving.properties": SCRIPTED + "option.served_model_name=uno\n",
        "one/adapters/french/model.py": "",
        "two/serving.properties": SCRIPTED,
    },
    "",
)


async def get(server: RunningServer, path: str) -> tuple[int, Any]:
    async with server.client.get(path, headers={"anthropic-version": "2023-06-01"}) as response:
        assert response.headers["request-id"] == response.headers["x-request-id"]
        return response.status, await response.json()


async def test_list(server: RunningServer) -> None:
    status, page = await get(server, "/v1/models")
    assert (status, [each["id"] for each in page["data"]]) == (200, NAMES)
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, "uno", "french")
    first = page["data"][0]
    assert first.pop("created_at").endswith("Z")
    assert first == {
        "type": "model",
        "id": "uno",
        "display_name": "uno",
        "lifecycle": "active",
        "max_input_tokens": 2048,
        "max_tokens": 2048,
    }
    assert (await server.get("/v1/models")).json()["object"] == "list"


@pytest.mark.parametrize(
    ("query", "names", "more"),
    [
        ("limit=2", ["uno", "one"], True),
        ("limit=2&after_id=one", ["two", "french"], False),
        ("limit=1&after_id=one", ["two"], True),
        ("limit=2&before_id=french", ["one", "two"], True),
        ("before_id=one", ["uno"], False),
        ("after_id=french", [], False),
    ],
)
async def test_pages(server: RunningServer, query: str, names: list[str], more: bool) -> None:
    status, page = await get(server, f"/v1/models?{query}")
    assert (status, [each["id"] for each in page["data"]], page["has_more"]) == (200, names, more)


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/v1/models?limit=0", 400, "`limit` must be a number from 1 to 1000. Given: '0'"),
        (f"/v1/models?limit={'9' * 5000}", 400, "`limit` must be a number from 1 to 1000. Given: '999"),
        ("/v1/models?after_id=tre", 400, "`after_id` must be the id of a model. Given: 'tre'"),
        ("/v1/models/tre", 404, "model `tre` is not served."),
    ],
)
async def test_errors(server: RunningServer, path: str, status: int, message: str) -> None:
    found, content = await get(server, path)
    assert (found, content["type"]) == (status, "error")
    assert content["error"]["message"].startswith(message)


async def test_one_model(server: RunningServer) -> None:
    status, found = await get(server, "/v1/models/french")
    assert (status, found["id"]) == (200, "french")
