from pathlib import Path

import pytest

from lmi_core.script.function.device_ids import device_id


@pytest.mark.parametrize(
    ("present", "visible", "expected"),
    [
        (0, None, ["-1", "-1", "-1"]),
        (1, None, ["0", "0", "0"]),
        (2, None, ["0", "1", "0"]),
        (4, "2,3", ["0", "1", "0"]),
        (4, "GPU-8a2f, GPU-77b1 ,GPU-9c", ["0", "1", "2"]),
        (2, "", ["-1", "-1", "-1"]),
        (2, "1,-1,0", ["0", "0", "0"]),
        (0, "0,1", ["-1", "-1", "-1"]),
    ],
)
def test_device_of_each_worker(tmp_path: Path, present: int, visible: str | None, expected: list[str]) -> None:
    (tmp_path / "dev").mkdir()
    for name in [*(f"nvidia{index}" for index in range(present)), "nvidiactl", "nvidia-uvm", "null"]:
        (tmp_path / "dev" / name).touch()
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert [device_id(worker, (), environment, tmp_path) for worker in range(3)] == expected
