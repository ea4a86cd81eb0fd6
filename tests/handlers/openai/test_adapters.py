"""vLLM's routes that load and unload adapters."""

import asyncio

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
FORMATTER = """\
from djl_python.output_formatter import output_formatter

@output_formatter
def f(response_data: dict) -> dict:
    return {"by": "NAME"}
"""


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    files = {f"{folder}/model.py": FORMATTER.replace("NAME", folder) for folder in ("one", "two")}
    return await serve(model_dir({"serving.properties": SCRIPTED, **files}))


async def models(server: RunningServer) -> list[str]:
    return [each["id"] for each in (await server.get("/v1/models")).json()["data"]]


async def text(server: RunningServer) -> str:
    return str((await server.post("/invocations", {"inputs": "a", "adapters": "danish"})).json()["by"])


async def test_an_adapter_comes_changes_and_goes(server: RunningServer) -> None:
    loaded = await server.post(LOAD, {"lora_name": "danish", "lora_path": "one", "base_model_name": None})
    assert (loaded.status, loaded.body) == (200, b"Success: LoRA adapter 'danish' added successfully.")
    assert await models(server) == ["model", "danish"]
    assert await text(server) == "one"
    again = {"lora_name": "danish", "lora_path": "two"}
    refused = await server.post(LOAD, again)
    assert (refused.status, refused.json()["error"]["code"]) == (400, "adapter_exists")
    assert "already been loaded: unload it, or replace it with `load_inplace`" in refused.json()["error"]["message"]
    written_out = {"load_inplace": True, "is_3d_lora_weight": False}
    answers = await asyncio.gather(*(server.post(LOAD, again | written_out) for _ in range(3)))
    assert [answer.status for answer in answers] == [200] * 3
    assert await text(server) == "two"
    removed = await server.post(UNLOAD, {"lora_name": "danish", "lora_int_id": 1})
    assert (removed.status, removed.body) == (200, b"Success: LoRA adapter 'danish' removed successfully.")
    assert await models(server) == ["model"]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (UNLOAD, {"lora_name": "danish"}, 404, "adapter `danish`"),
        (UNLOAD, {}, 400, "`lora_name` is required"),
        (LOAD, {"lora_path": "one"}, 400, "`lora_name` is required"),
        (LOAD, {"lora_name": "danish"}, 400, "`lora_path` is required"),
        (LOAD, {"lora_name": "../a", "lora_path": "one"}, 400, "`lora_name` must be printable"),
        (LOAD, {"lora_name": "danish", "lora_path": "three"}, 400, "`lora_path` must be a folder or an archive"),
        (LOAD, {"lora_name": "danish", "lora_path": "one", "model": "mudel"}, 404, "model `mudel` is not served"),
        (LOAD, {"lora_name": "model", "lora_path": "one"}, 400, "`lora_name` must not be a name of the model itself"),
    ],
)
async def test_what_is_refused(
    server: RunningServer, path: str, body: dict[str, str], status: int, message: str
) -> None:
    answer = await server.post(path, body)
    assert answer.status == status
    assert message in answer.json()["error"]["message"]
    assert await models(server) == ["model"]
