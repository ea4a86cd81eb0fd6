"""SageMaker's multi-model contract, and several versions of a model, with `lmi serve` itself."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conftest import SCRIPTED, ModelDirectory
from tests.lmi_process import LmiProcess, lmi_serve

FAR = {"X-Forwarded-For": "10.0.0.2"}  # as SageMaker's requests come from another host


async def ask(
    client: aiohttp.ClientSession, method: str, path: str, body: object = None, headers: Mapping[str, str] = FAR
) -> tuple[int, Any]:
    async with client.request(method, path, json=body, headers=headers) as response:
        return response.status, await response.json()


async def start(process: LmiProcess, client_timeout: float = 60) -> aiohttp.ClientSession:
    async with asyncio.timeout(client_timeout):
        return aiohttp.ClientSession(await process.ready())


async def test_multi_model_endpoint(model_dir: ModelDirectory, tmp_path: Path) -> None:
    for name in ("one", "two"):
        model_dir({"serving.properties": f"{SCRIPTED}option.scripted_text={name}\n"}, f"{name}/model")
    big = model_dir({"serving.properties": f"{SCRIPTED}required_memory_mb=1000000000\n"}, "big/model")
    environment = {"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_BASE_DIR": str(tmp_path / "ml")}
    async with lmi_serve("--port", 0, environment=environment) as process, await start(process) as client:
        assert await ask(client, "GET", "/ping") == (200, {"status": "Healthy"})
        assert await ask(client, "GET", "/models") == (200, {"models": []})
        status, found = await ask(client, "POST", "/invocations", {"inputs": "Hello"})
        assert (status, found["error"]) == (404, "no model is served yet: POST /models registers one")
        for name in ("one", "two"):
            new = {"model_name": name, "url": str(tmp_path / name / "model")}
            assert (await ask(client, "POST", "/models", new))[0] == 200
            assert (await ask(client, "POST", "/models", new))[0] == 409
            status, found = await ask(client, "POST", f"/models/{name}/invoke", {"inputs": "Hello"})
            assert (status, found["generated_text"]) == (200, name)
        status, found = await ask(client, "POST", "/models", {"model_name": "big", "url": str(big)})
        assert status == 507
        assert found["error"].startswith("model big needs 1.05 PB (required_memory_mb), but ")
        status, found = await ask(client, "GET", "/models?limit=1")
        assert [(each["modelName"], each["modelUrl"]) for each in found["models"]] == [
            ("one", str(tmp_path / "one" / "model"))
        ]
        assert found["nextPageToken"] == "1"
        assert (await ask(client, "GET", "/models/two"))[0] == 200
        assert (await ask(client, "DELETE", "/models/two"))[0] == 200
        for method, path in (("GET", "/models/two"), ("DELETE", "/models/two"), ("POST", "/models/two/invoke")):
            assert (await ask(client, method, path, {"inputs": "a"} if method == "POST" else None))[0] == 404
        assert await ask(client, "GET", "/ping") == (200, {"status": "Healthy"})


async def test_versions_from_the_start(model_dir: ModelDirectory) -> None:
    directories = {
        name: model_dir({"serving.properties": f"{SCRIPTED}option.scripted_text={name}\n"}, name) for name in "ab"
    }
    items = ",".join(f"m:{name}:Python={directory}" for name, directory in directories.items())
    async with lmi_serve("--port", 0, "-m", items) as process, await start(process) as client:
        for path, expected in (("m", "a"), ("m/a", "a"), ("m/b", "b")):
            async with client.post(f"/predictions/{path}", json={"inputs": "Hello"}) as response:
                assert (await response.json())["generated_text"] == expected
        async with client.post("/predictions/m/c", json={"inputs": "Hello"}) as response:
            assert response.status == 404
        async with client.get("/models") as response:
            listed = (await response.json())["models"]
        assert [(each["version"], each["default"], each["loadedAtStartup"]) for each in listed] == [
            ("a", True, True),
            ("b", False, True),
        ]


@pytest.mark.parametrize("value", ["NONE", "none"])
async def test_server_without_models(value: str, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED})
    environment = {"SERVING_LOAD_MODELS": value}
    async with lmi_serve("--port", 0, environment=environment) as process, await start(process) as client:
        answer = await ask(client, "POST", "/models", {"url": str(directory)}, {})
    assert answer[0] == 200
