"""Pairs of texts on LMI's routes, as DJLServing's rerankers take them; a score is the sigmoid of a number of tokens."""

import math
from typing import Any

import pytest

from tests.conftest import SCRIPTED, RunningServer
from tests.module_server import module_server

pytestmark = pytest.mark.asyncio(loop_scope="module")  # that of the server that the tests share

PATHS = ["/invocations", "/predictions/model", "/endpoints/mine/invocations"]


server = module_server(f"{SCRIPTED}engine=Rust\nreranking=true\n")


def score(tokens: int) -> Any:
    return pytest.approx([1 / (1 + math.exp(-tokens))])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        {"text": "a", "text_pair": "b c"},
        {"key": "a", "value": "b c"},
        {"inputs": {"text": "a", "text_pair": "b c"}},
        {"inputs": {"text": "a", "text_pair": "b c"}, "messages": None},
    ],
)
async def test_one_pair(server: RunningServer, path: str, body: object) -> None:
    assert (await server.post(path, body)).json() == score(3)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        [{"text": "a", "text_pair": "b c"}, {"key": "a", "value": "b"}],
        {"query": "a", "texts": ["b c", "b"]},
        {"inputs": [{"text": "a", "text_pair": "b c"}, ["a", "b"]]},
    ],
)
async def test_several_pairs(server: RunningServer, path: str, body: object) -> None:
    assert (await server.post(path, body)).json() == [score(3), score(2)]


async def test_truncation(server: RunningServer) -> None:
    pair = {"text": "a", "text_pair": "b " * 10_000}
    answer = await server.post("/invocations", pair)
    assert answer.status == 424
    assert "`inputs.0` must be at most" in answer.json()["error"]
    assert (await server.post("/invocations", pair | {"truncate": True})).status == 200


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"text": "a"}, "`inputs.0.text_pair` is required"),
        ({"query": "a", "texts": "b"}, "`texts` must be an array"),
        ({"inputs": "a"}, "`inputs.0`"),
        ([], "`inputs`"),
        ([["a", 1]], "`inputs.0.text_pair`"),
    ],
)
async def test_wrong_requests(server: RunningServer, body: object, reason: str) -> None:
    answer = await server.post("/invocations", body)
    assert answer.status == 424
    assert reason in answer.json()["error"]


async def test_a_chat(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"messages": [{"role": "user", "content": "Hi"}]})
    assert answer.status == 404
    assert "generates no text" in answer.json()["message"]
