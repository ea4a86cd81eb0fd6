"""Ollama's routes about models, and those that would change which there are."""

import json
import struct
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lmi_core.inspection.safetensors_header import WeightFacts, weight_bytes
from lmi_handlers.ollama.files import human_number, read_files
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

CONFIGURATION = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
MISSING = {"error": "model 'other' not found"}


def weights(folder: Path, tensors: dict[str, tuple[str, list[int]]]) -> None:
    """Write a safetensors file with the header of these weights, which are holes in the file."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + weight_bytes(WeightFacts(dtype, tuple(shape)))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    data = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(data)) + data)
        file.truncate(file.tell() + end)


@pytest.fixture
def directory(model_dir: ModelDirectory) -> Path:
    properties = f"{SCRIPTED}option.served_model_name=tiny:1b\noption.reasoning_parser=qwen3\n"
    files = {"serving.properties": properties, "config.json": json.dumps(CONFIGURATION)}
    found = model_dir(files)
    weights(found, {"a": ("BF16", [1000, 1000]), "b": ("F32", [10])})
    return found


@pytest.fixture
async def server(serve: Serve, directory: Path) -> RunningServer:
    return await serve(directory)


async def show(server: RunningServer, **body: Any) -> dict[str, Any]:
    answer = await server.post("/api/show", body)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


async def test_tags(server: RunningServer, directory: Path) -> None:
    first, second = (await server.get("/api/tags")).json()["models"]
    assert [each["name"] for each in (first, second)] == ["tiny:1b", "model:latest"]
    assert first["model"] == first["name"]
    assert first["size"] == sum(path.stat().st_size for path in directory.iterdir())
    assert datetime.fromisoformat(first["modified_at"]).timestamp() == pytest.approx(
        max(path.stat().st_mtime for path in directory.iterdir()), abs=1e-3
    )
    assert first["details"] == {
        "parent_model": "",
        "format": "safetensors",
        "family": "llama",
        "families": ["llama"],
        "parameter_size": "1.00M",
        "quantization_level": "BF16",
        "context_length": 2048,
        "embedding_length": 64,
    }
    assert len(first["digest"]) == 64
    assert first["capabilities"] == ["completion", "thinking"]


async def test_files_are_read_once(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    first = (await server.get("/api/tags")).json()
    monkeypatch.setattr("lmi_handlers.ollama.models.read_files", None)
    monkeypatch.setattr("lmi_handlers.ollama.models.known_capabilities", None)
    assert (await server.get("/api/tags")).json() == first
    assert (await server.get("/api/ps")).status == 200


async def test_digest_changes_with_the_files_only(directory: Path) -> None:
    digest = read_files(directory).digest
    (directory / "config.json").touch()
    assert read_files(directory).digest == digest
    weights(directory, {"a": ("BF16", [1000, 1001]), "b": ("F32", [10])})
    assert read_files(directory).digest not in (digest, None)


async def test_show(server: RunningServer) -> None:
    found = await show(server, model="model")
    assert found == await show(server, name="model:latest") | {"modelfile": found["modelfile"]}
    assert found["capabilities"] == ["completion", "thinking"]
    assert found["model_info"] == {
        "general.architecture": "llama",
        "general.parameter_count": 1_000_010,
        "llama.context_length": 2048,
        "llama.block_count": 2,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.vocab_size": 100,
    }
    assert "message.content" in found["template"]


@pytest.mark.parametrize(
    ("properties", "capability"),
    [
        ("option.tool_call_parser=hermes\n", "tools"),
        ("option.reasoning_parser=qwen3\n", "thinking"),
    ],
)
async def test_capabilities(serve: Serve, model_dir: ModelDirectory, properties: str, capability: str) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + properties}))
    assert (await show(server, model="model"))["capabilities"] == ["completion", capability]
    server.scripted.tokenizer.template = None
    kept = ["thinking"] if capability == "thinking" else []
    assert (await show(server, model="model"))["capabilities"] == ["completion", *kept]


async def test_models_that_fill_in_the_middle(server: RunningServer) -> None:
    for part in ("prefix", "suffix", "middle"):
        server.scripted.tokenizer.id(f"<|fim_{part}|>")
    assert "insert" in (await show(server, model="model"))["capabilities"]


async def test_show_of_an_unknown_model(server: RunningServer) -> None:
    unknown = await server.post("/api/show", {"model": "other"})
    assert (unknown.status, unknown.json()) == (404, MISSING)
    unnamed = await server.post("/api/show", {})
    assert (unnamed.status, unnamed.json()) == (400, {"error": "`model` is required"})


async def test_ps_has_what_is_loaded(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus in (1, 0):
        monkeypatch.setattr("lmi_handlers.ollama.models.visible_gpus", lambda gpus=gpus: gpus)
        first, _ = (await server.get("/api/ps")).json()["models"]
        assert first["size_vram"] == (first["size"] if gpus else 0)
    assert (first["name"], first["context_length"]) == ("tiny:1b", 2048)
    assert datetime.fromisoformat(first["expires_at"]).year == 9999
    server.model.ready = False
    assert (await server.get("/api/ps")).json() == {"models": []}
    assert len((await server.get("/api/tags")).json()["models"]) == 2
    assert (await server.post("/api/show", {"model": "model"})).status == 503


async def test_model_without_files(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    (found,) = (await server.get("/api/tags")).json()["models"]
    assert (found["size"], found["details"]["family"], len(found["digest"])) == (0, "", 64)


async def test_adapter(serve: Serve, model_dir: ModelDirectory) -> None:
    files = {"serving.properties": SCRIPTED, "adapters/french/model.py": "# French\n"}
    server = await serve(model_dir(files))
    _, adapter = (await server.get("/api/tags")).json()["models"]
    assert (adapter["name"], adapter["size"]) == ("french:latest", len("# French\n"))
    assert adapter["details"]["parent_model"] == "model:latest"


async def test_version_and_root(server: RunningServer) -> None:
    assert set((await server.get("/api/version")).json()) == {"version"}
    answer = await server.get("/")
    assert (answer.status, answer.body) == (200, b"Ollama is running")
    async with server.client.head("/") as head:
        assert head.status == 200


async def test_pull(server: RunningServer) -> None:
    stream = await server.post("/api/pull", {"model": "tiny:1b"})
    assert stream.content_type == "application/x-ndjson"
    assert stream.json_lines() == [{"status": "pulling manifest"}, {"status": "success"}]
    whole = await server.post("/api/pull", {"name": "model", "stream": False})
    assert whole.json() == {"status": "success"}
    unknown = await server.post("/api/pull", {"model": "other"})
    assert (unknown.status, unknown.json()["error"].startswith("model 'other' not found: ")) == (404, True)


@pytest.mark.parametrize("path", ["push", "create", "copy"])
async def test_models_are_not_changed(server: RunningServer, path: str) -> None:
    answer = await server.post(f"/api/{path}", {"model": "model"})
    assert (answer.status, "models are served from the directories" in answer.json()["error"]) == (403, True)


async def test_models_are_not_deleted(server: RunningServer) -> None:
    async with server.client.delete("/api/delete", json={"model": "model"}) as response:
        assert (response.status, "deletes no models" in (await response.json())["error"]) == (403, True)


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999"), (1_500, "2K"), (1_312_384, "1.31M"), (494_032_768, "494.03M"), (7_615_616_512, "7.6B")],
)
async def test_numbers_as_ollama_shows_them(count: int, text: str) -> None:
    assert human_number(count) == text


async def test_quantized_weights(directory: Path) -> None:
    method = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    (directory / "config.json").write_text(json.dumps(CONFIGURATION | method))
    found = read_files(directory)
    assert (found.quantization, found.num_parameters) == ("GPTQ_4BIT", None)


@pytest.mark.parametrize(
    "data", [b"", b"abc", b"\xff" * 16, struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 5) + b"{}"]
)
async def test_broken_weights(directory: Path, data: bytes) -> None:
    (directory / "model.safetensors").write_bytes(data)
    found = read_files(directory)
    assert (found.num_parameters, found.element_type) == (None, "")
