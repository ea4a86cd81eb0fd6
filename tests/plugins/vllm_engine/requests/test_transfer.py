"""Parameters of a request for vLLM's KV connector and processors, and the connector's reply."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.conftest import running_server
from tests.plugins.vllm_server import PROPERTIES, STORY, VllmServer, copy_hello

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

CONNECTOR = {
    "kv_connector": "EchoingConnector",
    "kv_connector_module_path": "tests.plugins.vllm_engine.requests.echoing_connector",
    "kv_role": "kv_both",
}
TEMPLATE = "{{ messages[-1].content }}"
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": STORY}]},
    "/v1/completions": {"prompt": STORY},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connected(vllm_environment: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmServer]:
    properties = f"{PROPERTIES}option.kv_transfer_config={json.dumps(CONNECTOR)}\noption.chat_template={TEMPLATE}\n"
    directory = copy_hello(tmp_path_factory.mktemp("connected") / "hello", properties)
    async with running_server(directory) as server:
        yield VllmServer(server)


@pytest.mark.parametrize("path", BODIES)
async def test_what_the_connector_is_told_and_says(connected: VllmServer, path: str) -> None:
    told = {"do_remote_decode": True, "remote_engine_id": None, "ports": [1, {"a": 2.5}]}
    asked: dict[str, Any] = {
        "kv_transfer_params": told | {"prompt_token_ids": [1, 2, 3]},  # which is rendered and tokenized here
        "ec_transfer_params": {"peer": "a"},
        "vllm_xargs": {"mine": [1, "two", 0.5], "other": "x"},
        "no_repeat_ngram_size": 3,
    }
    plain = (await connected.server.post(path, BODIES[path] | {"max_tokens": 3, "temperature": 0})).json()
    answer = (await connected.server.post(path, BODIES[path] | {"max_tokens": 3, "temperature": 0} | asked)).json()
    extra = {"kv_transfer_params": told, "ec_transfer_params": {"peer": "a"}, "no_repeat_ngram_size": 3}
    said = {"told": told, "extra_args": asked["vllm_xargs"] | extra}
    assert answer["kv_transfer_params"] == said
    assert answer["usage"] == plain["usage"]
    assert "kv_transfer_params" not in plain


@pytest.mark.parametrize("path", BODIES)
async def test_streams_have_no_place_for_what_it_says(connected: VllmServer, path: str) -> None:
    asked = {"kv_transfer_params": {"do_remote_prefill": False}, "stream": True, "max_tokens": 3}
    answer = await connected.server.post(path, BODIES[path] | asked)
    assert answer.status == 200
    assert b"kv_transfer_params" not in answer.body
    assert answer.body.endswith(b"data: [DONE]\n\n")


async def test_each_prompt_and_sequence_tells_it(connected: VllmServer) -> None:
    asked = {"prompt": [STORY, "Hi"], "n": 2, "kv_transfer_params": {"a": 1}, "max_tokens": 2}
    answer = await connected.server.post("/v1/completions", asked)
    assert answer.json()["kv_transfer_params"]["told"] == {"a": 1}
    assert len(answer.json()["choices"]) == 4


async def test_parameters_of_lmis_own_requests(connected: VllmServer) -> None:
    asked = {"vllm_xargs": {"mine": 1}, "kv_transfer_params": {"a": 1}}
    answer = await connected.ask(STORY, max_new_tokens=2, vllm_fields=asked)
    assert answer["details"]["generated_tokens"] == 2
