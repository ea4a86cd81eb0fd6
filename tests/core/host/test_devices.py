from pathlib import Path

import pytest

from lmi_core.host.devices import visible_gpus


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    return tmp_path


def test_no_gpu(root: Path) -> None:
    assert visible_gpus({}, root) == 0


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 3),
        ({"CUDA_VISIBLE_DEVICES": "0,2"}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "1,-1,2"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8f2a"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3,4"}, 3),
    ],
)
def test_nvidia(root: Path, environment: dict[str, str], expected: int) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (root / "dev" / name).touch()
    assert visible_gpus(environment, root) == expected


def test_amd(root: Path) -> None:
    for number, gpu_id in enumerate(("0", "51110", "2742")):  # the first node is the host's CPU
        node = root / "sys/class/kfd/kfd/topology/nodes" / str(number)
        node.mkdir(parents=True)
        (node / "gpu_id").write_text(gpu_id + "\n")
    assert visible_gpus({}, root) == 2
    assert visible_gpus({"HIP_VISIBLE_DEVICES": "0"}, root) == 1
