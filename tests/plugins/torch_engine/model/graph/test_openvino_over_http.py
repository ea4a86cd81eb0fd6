"""A server whose model OpenVINO computes, with quantized weights."""

from pathlib import Path

import pytest

from tests.conftest import ModelDirectory, Serve

HELLO = Path("examples/hello")
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


@pytest.mark.parametrize("quantize", ["", "option.quantize=int4\n"])
async def test_answers(
    quantize: str,
    serve: Serve,
    model_dir: ModelDirectory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "cache"))
    directory = model_dir({"serving.properties": f"option.rolling_batch=torch\noption.cpu_runner=openvino\n{quantize}"})
    for name in FILES:
        (directory / name).write_bytes((HELLO / name).read_bytes())
    server = await serve(directory)
    answer = await server.post("/invocations", {"inputs": "What is Deep Learning?"})
    assert answer.json() == {"generated_text": "Deep Learning is a really cool field."}
    assert server.model.warnings == []
    assert list((tmp_path / "cache" / "graphs").glob("*.xml"))
