"""Fields that OpenAI's dialects pass to the engine: salts, request ids, and fields for vLLM only."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import structs

from lmi_core.generation.output import GenerationStep
from lmi_plugins.backends.scripted import Script
from lmi_plugins.trtllm.parameters import TrtllmParameters
from tests.conftest import SCRIPTED, RunningServer, parameters
from tests.handlers.openai.chats import BODIES, ask
from tests.module_server import module_server

HEADER = "X-Lmi-Ignored-Parameters"


pytestmark = pytest.mark.asyncio(loop_scope="module")


server = module_server(SCRIPTED)


@pytest.mark.parametrize("path", BODIES)
async def test_what_is_vllms_alone_may_be_empty(server: RunningServer, path: str) -> None:
    names = ("vllm_xargs", "kv_transfer_params", "ec_transfer_params", "mm_processor_kwargs", "media_io_kwargs")
    empty: dict[str, Any] = {name: {} for name in names} | {"repetition_detection": {"max_pattern_size": 0}}
    answer = await ask(server, path, **empty)
    assert (answer.status, answer.headers.get(HEADER)) == (200, None)
    assert parameters(server).repetition_detection is None


@pytest.mark.parametrize("path", BODIES)
async def test_a_request_names_itself(server: RunningServer, path: str) -> None:
    """A request's id comes from a header, otherwise from its body."""
    answer = await ask(server, path, request_id="mine 1", n=1)
    assert answer.headers["x-request-id"] == "mine 1"
    assert answer.json()["id"].endswith("-mine 1")
    body = BODIES[path] | {"request_id": "mine 2"}
    named = await server.post(path, body, headers={"x-request-id": "theirs"})
    assert named.headers["x-request-id"] == "theirs"
    assert named.json()["id"].endswith("-theirs")


async def test_a_request_is_aborted_by_the_name_in_its_body(server: RunningServer) -> None:
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    asked = asyncio.create_task(ask(server, "/v1/completions", request_id="to be aborted"))
    await script.started.wait()
    aborted = await server.post("/v1/abort_request", {"request_id": "to be aborted"})
    assert aborted.json()["aborted"]
    assert (await asked).json()["choices"][0]["finish_reason"] == "abort"


@pytest.mark.parametrize("path", BODIES)
async def test_salt_of_the_cache(server: RunningServer, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache salt changes no answer, so a backend without a prefix cache need not support it."""
    answer = await ask(server, path, cache_salt="a")
    assert (answer.status, answer.headers.get(HEADER)) == (200, None)
    assert parameters(server).cache_salt == "a"
    monkeypatch.setattr(server.model.backend, "parameters_type", TrtllmParameters)
    answer = await ask(server, path, cache_salt="a")
    assert (answer.status, answer.headers.get(HEADER)) == (200, "cache_salt")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_what_an_engine_hands_on(server: RunningServer, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole answers return the engine's parameters; streams have no field for them, as in vLLM."""
    told = {"kv_transfer_params": {"remote_block_ids": [1]}}
    scripted: Any = server.scripted
    say = scripted._answer

    async def telling(*asked: Any) -> AsyncIterator[GenerationStep]:
        async for step in say(*asked):
            yield structs.replace(step, transfer=told if step.finish_reason else None)

    monkeypatch.setattr(scripted, "_answer", telling)
    assert (await ask(server, path)).json()["kv_transfer_params"] == told["kv_transfer_params"]
    assert b"kv_transfer_params" not in (await ask(server, path, stream=True)).body


@pytest.mark.parametrize("name", ["kv_transfer_params", "ec_transfer_params"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_other_forms_have_no_place_for_it(server: RunningServer, path: str, name: str) -> None:
    answer = await server.post(path, BODIES[path] | {name: {"a": 1}}, headers={"Accept": "application/jsonlines"})
    assert answer.status == 400
    assert answer.json()["error"]["message"].startswith(
        f"`{name}` must be null unless the answer is in OpenAI's format"
    )
