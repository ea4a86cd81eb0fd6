"""Models in GGUF files: converted once, and served like any other."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmi_core.backend import BackendSetup
from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.remote.archives.gguf_file import convert
from lmi_core.remote.fetching import fetch, forecast, whole_model
from lmi_core.remote.report import Report
from lmi_plugins.backends.torch import TorchProperties
from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.core.remote.archives.gguf_models import END, HELLO, write_hello
from tests.core.remote.fake_hub import fake_hub

STORY = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 100, "temperature": 0}
ANOTHER_END = 3


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TQDM_DISABLE", "1")  # as in the download process
    return tmp_path / "cache"


def properties(folder: Path) -> str:
    return (folder / "serving.properties").read_text()


def of(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def convert_here(file: Path) -> Path:
    """Convert a file here, without a process that imports everything first."""
    convert(file, folder := file.with_suffix(""), Report(lambda _: None))
    return folder


def refusal(file: Path) -> str:
    with pytest.raises(ConfigurationError) as raised:
        convert_here(file)
    return raised.value.message


async def story(serve: Serve, directory: Path) -> str:
    server = await serve(directory)
    answer = await server.post("/v1/chat/completions", STORY)
    assert answer.status == 200, answer.body
    return str(answer.json()["choices"][0]["message"]["content"])


async def test_answers_are_those_of_the_model(serve: Serve, tmp_path: Path) -> None:
    model = whole_model(str(write_hello(tmp_path / "hello.gguf", "BF16")))
    folder = await fetch(model)
    assert folder.name == "hello"
    assert await fetch(model) == folder  # made once
    assert properties(folder) == ""
    plain = tmp_path / "plain"
    plain.mkdir()
    for path in HELLO.iterdir():
        if path.suffix in (".json", ".jinja", ".safetensors"):
            (plain / path.name).symlink_to(path)
    (plain / "serving.properties").write_text("option.dtype=bf16\n")
    assert await story(serve, folder) == await story(serve, plain)


async def test_a_directory_may_have_the_file_and_its_own_options(serve: Serve, tmp_path: Path) -> None:
    directory = tmp_path / "mine"
    directory.mkdir()
    write_hello(directory / "hello-Q8_0.gguf", "Q8_0")
    (directory / "serving.properties").write_text("option.max_model_len=256\noption.quantize=int8\n")
    assert (await story(serve, directory)).startswith("Once upon a time")


async def test_a_file_of_the_hub(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    directory = tmp_path / "mine"
    directory.mkdir()
    (directory / "serving.properties").write_text("option.model_id=org/tiny\n")
    weights = write_hello(tmp_path / "hello.gguf", "Q8_0").read_bytes()
    with fake_hub({"README.md": b"", "tiny-Q4_0.gguf": b"", "tiny-Q8_0.gguf": weights}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        assert (await story(serve, directory)).startswith("Once upon a time")
        hub.commit, hub.files["README.md"] = "f" * 40, b"Hello"
        folder = await fetch(RemoteModel("org/tiny:Q8_0"))
        assert properties(folder) == "option.quantize=int8\n"
        files = [request for request in hub.requests if request.startswith("GET /org/tiny/resolve/")]
        assert [file.rpartition("/")[2] for file in files] == ["tiny-Q8_0.gguf"]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert await fetch(RemoteModel("org/tiny")) == folder
    assert "/tiny-Q8_0.gguf" in forecast(RemoteModel("org/tiny"))
    setup = BackendSetup(Path("org/tiny"), TorchProperties(model_id="org/tiny"), {}, retry_threshold=0)
    assert setup.with_folders({"model_id": folder}).properties.quantize == "int8"
    assert replace(setup, directory=directory).with_folders({"model_id": folder}).properties.quantize is None
    (directory / "serving.properties").write_text("option.quantize=int8\n")  # as in any repository
    assert setup.with_folders({"model_id": directory}).properties.quantize is None


def test_quantization_becomes_the_nearest_one(tmp_path: Path) -> None:
    for kind, wanted in (("Q8_0", "int8"), ("Q4_0", "int4")):
        assert properties(convert_here(write_hello(tmp_path / f"{kind}.gguf", kind))) == f"option.quantize={wanted}\n"


def test_what_transformers_leaves_out_is_read(tmp_path: Path) -> None:
    frequencies = 10000.0 ** (-np.arange(0, 32, 2) / 32)
    wavelengths = 2 * np.pi / frequencies
    smooth = np.clip((8192 / wavelengths - 1) / 3, 0, 1)
    factors = (1 / ((1 - smooth) / 8 + smooth)).astype(np.float32)
    more: dict[str, int | str] = {
        "tokenizer.ggml.eot_token_id": ANOTHER_END,
        "tokenizer.ggml.bos_token_id": END,
        "tokenizer.ggml.add_bos_token": 1,
    }
    folder = convert_here(write_hello(tmp_path / "a.gguf", metadata=more, rope_factors=factors))
    assert of(folder, "generation_config.json")["eos_token_id"] == [END, ANOTHER_END]
    assert of(folder, "config.json")["rope_parameters"] == {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": pytest.approx(8.0),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    from transformers import AutoTokenizer

    assert AutoTokenizer.from_pretrained(folder)("a").input_ids[0] == END


def test_refused_files(tmp_path: Path) -> None:
    other = np.linspace(1, 3, 16, dtype=np.float32)
    assert "its scaling of positions is neither" in refusal(write_hello(tmp_path / "a.gguf", rope_factors=other))
    scaled: dict[str, int | str] = {"llama.rope.scaling.type": "longrope"}
    assert "longrope, is not supported" in refusal(write_hello(tmp_path / "b.gguf", metadata=scaled))
    part: dict[str, int | str] = {"split.count": 2}
    assert "join them with" in refusal(write_hello(tmp_path / "c.gguf", metadata=part))
    assert "transformers cannot read the model" in refusal(write_hello(tmp_path / "d.gguf", architecture="unheard-of"))
    (tmp_path / "e.gguf").write_bytes(b"GGUF" + bytes(100))
    (tmp_path / "f.gguf").write_text("<html>")
    for name in ("e.gguf", "f.gguf"):
        assert "this is not a GGUF file, or it is damaged" in refusal(tmp_path / name)


async def test_other_engines_get_the_file_itself(serve: Serve, model_dir: ModelDirectory) -> None:
    """A model's own code may read it, so it need not be one that could be converted."""
    told = "def handle(inputs):\n    return Output().add(inputs.get_properties()['model_id'])\n"
    script = f"from djl_python import Output\n{told}"
    given = "option.model_id=a.gguf\n"
    for name, files in (
        ("text", {"serving.properties": SCRIPTED + given, "a.gguf": ""}),
        ("function", {"serving.properties": given, "model.py": script, "a.gguf": ""}),
    ):
        server = await serve(model_dir(files, name))
        answer = await server.post("/invocations", {"inputs": "a"})
        assert answer.status == 200, answer.body
    assert answer.body == b"a.gguf"
