"""What vLLM would read that is pickled: refused before it is started."""

import json
from pathlib import Path

import pytest

from lmi_core.errors import InvalidAdapter
from lmi_core.workers.replicas import Replicas
from lmi_plugins.vllm_engine.arguments.load_formats import pickle_faults, without_pickles

REFUSED = "is a pickle, which may contain code: get the weights as safetensors, or set option.allow_pickle=true"


@pytest.mark.parametrize("load_format", [None, "auto", "hf"])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "whatever.bin", "model.pt", "consolidated.00.pth"])
def test_refused_without_the_option(tmp_path: Path, name: str, load_format: str | None) -> None:
    (tmp_path / name).touch()
    arguments = {"model": str(tmp_path)} | ({"load_format": load_format} if load_format else {})
    (fault,) = pickle_faults(arguments, allowed=False)
    assert fault.startswith(f"{tmp_path / name} {REFUSED}")
    assert pickle_faults(arguments, allowed=True) == []
    (tmp_path / "model-1.safetensors").touch()  # which vLLM reads instead
    assert pickle_faults(arguments, allowed=False) == []


def test_several_files(tmp_path: Path) -> None:
    for index in range(3):
        (tmp_path / f"pytorch_model-{index}.bin").touch()
    (fault,) = pickle_faults({"model": str(tmp_path)}, allowed=False)
    assert fault.startswith(f"{tmp_path}/pytorch_model-0.bin and 2 more files are pickles, which may contain code")


@pytest.mark.parametrize("load_format", ["pt", "npcache"])
def test_formats_that_are_pickles(tmp_path: Path, load_format: str) -> None:
    (tmp_path / "model.safetensors").touch()
    arguments = {"model": str(tmp_path), "load_format": load_format}
    (fault,) = pickle_faults(arguments, allowed=False)
    assert fault.startswith(f"option.load_format={load_format} reads pickles")
    assert pickle_faults(arguments, allowed=True) == []


@pytest.mark.parametrize("load_format", ["safetensors", "dummy", "tensorizer", "sharded_state"])
def test_formats_that_are_not(tmp_path: Path, load_format: str) -> None:
    (tmp_path / "training_args.bin").touch()
    assert pickle_faults({"model": str(tmp_path), "load_format": load_format}, allowed=False) == []


def test_draft_models(tmp_path: Path) -> None:
    for name in ("main", "draft"):
        (tmp_path / name).mkdir()
    (tmp_path / "main" / "model.safetensors").touch()
    (tmp_path / "draft" / "pytorch_model.bin").touch()
    config = json.dumps({"model": str(tmp_path / "draft")})
    (fault,) = pickle_faults({"model": str(tmp_path / "main"), "speculative_config": config}, allowed=False)
    assert fault.startswith(f"{tmp_path}/draft/pytorch_model.bin {REFUSED}")


def test_layers_behind_a_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "modules.json").write_text(json.dumps([{"path": ""}, {"path": "2_Dense"}]))
    (tmp_path / "2_Dense").mkdir()
    (tmp_path / "2_Dense" / "pytorch_model.bin").touch()
    (fault,) = pickle_faults({"model": str(tmp_path)}, allowed=False)
    assert fault.startswith(f"{tmp_path}/2_Dense/pytorch_model.bin {REFUSED}")


def test_what_vllm_downloads_by_itself(tmp_path: Path) -> None:
    remote = {"model": "org/name", "download_dir": "/models"}
    assert without_pickles(remote, allowed=False) == {**remote, "load_format": "safetensors"}
    assert without_pickles(remote, allowed=True) == remote
    dummy = {**remote, "load_format": "dummy"}
    assert without_pickles(dummy, allowed=False) == dummy
    local = {"model": str(tmp_path)}
    assert without_pickles(local, allowed=False) == local


@pytest.mark.vllm
@pytest.mark.parametrize("name", ["adapter_model.bin", "adapter_model.pt"])
async def test_adapters(tmp_path: Path, name: str) -> None:
    from lmi_plugins.vllm_engine.adapters.loaded import VllmAdapters
    from lmi_plugins.vllm_engine.engine import VllmEngine

    (tmp_path / name).touch()
    with pytest.raises(InvalidAdapter, match=REFUSED):
        await VllmAdapters(Replicas(lambda _: VllmEngine({}, 0))).load("evil", tmp_path)
