"""The torch engine's device, on hosts with and without GPUs."""

import importlib.util
import os
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from lmi_core.workers.placement import ANYWHERE
from lmi_core.workers.replicas import ONE, ReplicaCount
from lmi_plugins.backends import torch as module
from lmi_plugins.backends import torch_devices
from lmi_plugins.backends.torch import TorchProperties, engine_options
from lmi_plugins.backends.torch_devices import Host, device_placement, openvino_substitutions, this_host
from lmi_plugins.torch_engine.client.placing import place
from lmi_plugins.torch_engine.messages.requests import EngineOptions

BARE = Host(0, "this host has no GPU", False)
TWO = Host(2, "this host has 2 GPUs", False)
MAC = Host(0, "this host has no GPU", True)
UNKNOWN = Host(None, "", False)
ON_CPU = "the model runs on the CPU, which is many times slower"


@pytest.fixture(autouse=True)
def _old_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_devices, "computes_natively", lambda data_type: data_type == "bf16")


@pytest.mark.parametrize(
    ("host", "options", "device", "told"),
    [
        (BARE, {}, "auto", []),
        (BARE, {"device": "cpu"}, "cpu", []),
        (BARE, {"device": "cuda"}, "auto", [f"option.device=cuda: this host has no GPU; {ON_CPU}"]),
        (BARE, {"device": "mps"}, "auto", [f"option.device=mps: only a Mac has this device; {ON_CPU}"]),
        (BARE, {"device_map": "cuda:1"}, "auto", [f"option.device_map=cuda:1: this host has no GPU; {ON_CPU}"]),
        (TWO, {"device": "cuda:1"}, "cuda:1", []),
        (TWO, {"device": "cuda:2"}, "cuda:0", ["option.device=cuda:2: this host has 2 GPUs; the model runs on cuda:0"]),
        (TWO, {"device": "mps"}, "auto", ["option.device=mps: only a Mac has this device; the model runs on the GPU"]),
        (MAC, {"device": "mps"}, "mps", []),
        (MAC, {"device": "cuda"}, "auto", ["option.device=cuda: this host has no GPU; the model runs on mps"]),
        (UNKNOWN, {"device": "cuda:7", "tensor_parallel_degree": 8, "dtype": "fp16"}, "cuda:7", []),
        (TWO, {"tensor_parallel_degree": 8}, "auto", []),  # a limit of the engine's, on every host
        (
            BARE,
            {"tensor_parallel_degree": 8, "pipeline_parallel_degree": 2},
            "auto",
            [
                f"option.tensor_parallel_degree=8: this host has no GPU; {ON_CPU}",
                f"option.pipeline_parallel_degree=2: this host has no GPU; {ON_CPU}",
            ],
        ),
        (BARE, {"dtype": "bf16"}, "auto", []),
        (TWO, {"dtype": "fp16"}, "auto", []),
        (
            BARE,
            {"dtype": "float16"},
            "auto",
            [
                "option.dtype=float16: this host's CPU has no instructions for fp16; it is used nevertheless; "
                "PyTorch takes about twice as long for long prompts as with fp32"
            ],
        ),
    ],
)
def test_devices(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    host: Host,
    options: dict[str, object],
    device: str,
    told: list[str],
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(module, "this_host", lambda: host)
    properties = TorchProperties.model_validate(options)
    assert [str(each) for each in properties.substitutions] == told
    assert engine_options(tmp_path, properties).device == device


@pytest.mark.parametrize(("host", "used"), [(BARE, None), (TWO, 0.5), (UNKNOWN, 0.5)])
def test_share_of_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: Host, used: float | None) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(module, "this_host", lambda: host)
    properties = TorchProperties(gpu_memory_utilization=0.5)
    assert engine_options(tmp_path, properties).gpu_memory_utilization == used
    assert len(properties.substitutions) == (used is None)


@pytest.mark.parametrize(
    ("version", "gpus", "lacking"),
    [
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", 0, ", but the installed torch is a build for CPUs"),
        ("cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n", 2, ""),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '7.1'\n", 2, ""),
    ],
)
def test_builds_of_torch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, gpus: int, lacking: str
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "version.py").write_text(version)
    spec = PathFinder.find_spec("torch", [str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(torch_devices, "count_gpus", lambda: 2)
    host = this_host()
    assert (host.gpus, host.lacking) == (gpus, f"this host has 2 GPUs{lacking}")


@pytest.mark.parametrize(
    ("host", "config", "options", "told"),
    [
        (BARE, "{}", {"cpu_runner": "openvino", "quantize": "int8"}, []),
        (UNKNOWN, "{}", {"cpu_runner": "openvino"}, []),
        (BARE, '{"dtype": "float16"}', {}, []),
        (
            TWO,
            "{}",
            {"quantize": "int8"},
            ["option.quantize=int8: the model does not run on the CPU; the weights keep their own type"],
        ),
        (
            BARE,
            '{"torch_dtype": "float64"}',
            {"cpu_runner": "openvino"},
            [
                "option.cpu_runner=openvino: OpenVINO computes float32, bfloat16 and float16, but the model has "
                "float64; PyTorch computes the model"
            ],
        ),
        (BARE, '{"torch_dtype": "float64"}', {"cpu_runner": "openvino", "dtype": "bf16"}, []),
        (
            BARE,
            "damaged",
            {"quantize": "int8", "cpu_runner": "torch"},
            ["option.quantize=int8: option.cpu_runner is torch; the weights keep their own type"],
        ),
    ],
)
def test_openvino(host: Host, config: str, options: dict[str, str], told: list[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(config)
    asked = EngineOptions(str(tmp_path), **options)  # type: ignore[arg-type]
    assert [str(each) for each in openvino_substitutions(asked, host)] == told


@pytest.mark.parametrize(
    ("devices", "asked", "gpus", "degree", "groups"),
    [
        ((), "auto", 0, 1, [["cpu"]]),
        ((), "auto", 3, 1, [["0"], ["1"], ["2"]]),
        ((), "auto", 4, 2, [["0", "1"], ["2", "3"]]),
        ((), "cuda:1", 3, 1, [["cpu"]]),  # which leaves the device of the options
        (("1", "2"), "cuda:1", 3, 1, [["1"], ["2"]]),
        (("1", "7"), "cuda:1", 3, 1, [["1"]]),
        (("1", "2"), "cuda:0", 3, 1, [["cpu"]]),
        (("cpu",), "cpu", 3, 1, [["cpu"]]),
    ],
)
def test_devices_of_replicas(
    devices: tuple[str, ...], asked: str, gpus: int, degree: int, groups: list[list[str]]
) -> None:
    found = device_placement(ONE, devices, asked, degree, Host(gpus, "", mps=False))
    assert [list(group) for group in found.groups] == groups


def test_a_replica_has_its_own_device_or_its_share() -> None:
    options = EngineOptions("model")
    gpus = device_placement(ReplicaCount(2, 2), ("1", "2"), "cuda:1", 1, Host(3, "", mps=False))
    placed_on_gpus = [place(options, number, gpus, gpus.replicas) for number in range(4)]
    assert [each.device for each in placed_on_gpus] == ["cuda:1", "cuda:2"] * 2
    assert [each.replicas_on_device for each in placed_on_gpus] == [2] * 4
    one = place(options, 0, ANYWHERE, ONE)
    assert one == options
    shared = place(options, 0, ANYWHERE, ReplicaCount(2, 4))
    assert (shared.device, shared.replicas_on_device) == ("auto", 2)
    assert shared.threads == max(1, (os.cpu_count() or 1) // 2)
