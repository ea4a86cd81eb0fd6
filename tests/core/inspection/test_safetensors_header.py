import json
from pathlib import Path
from typing import Any

import pytest

from lmi_core.errors.fault import Fault
from lmi_core.inspection.safetensors_header import WeightFacts, read_header, weight_bytes

WEIGHTS: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [], "data_offsets": [24, 26]},
}


def save(file: Path, header: object, data: int = 26) -> Path:
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(data))
    return file


def test_facts_of_weights(tmp_path: Path) -> None:
    facts = read_header(save(tmp_path / "file", WEIGHTS))
    assert facts == {"a": WeightFacts("F32", (2, 3)), "b": WeightFacts("BF16", ())}
    assert [weight_bytes(weight) for weight in facts.values()] == [24, 2]


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (WEIGHTS, 20),  # cut off
        (WEIGHTS, 27),
        ([], 0),
        ({"a": {"dtype": "F32", "shape": [2]}}, 8),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, 4),
        ({"a": {"dtype": "Q7" * 500, "shape": [2], "data_offsets": [0, 4]}}, 4),
        ({"a": {"dtype": "F32", "shape": [2**62] * 100_000, "data_offsets": [0, 4]}}, 4),
    ],
)
def test_damaged_files(tmp_path: Path, header: object, data: int) -> None:
    file = save(tmp_path / "file", header, data)
    with pytest.raises(Fault, match="/file: the file is cut off, damaged, or not in the safetensors format") as caught:
        read_header(file)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is cut off, damaged, or not in the safetensors format: header too small"),
        (b"<html>404 Not Found</html>", "the file is cut off, damaged, or not in the safetensors format: .*"),
        ((200_000).to_bytes(8, "little") + b"[" * 200_000, "the file is cut off, damaged, or not in .*"),
        (b"version https://git-lfs.github.com/spec/v1\n", "the file is a Git LFS pointer to the weights: fetch .*"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, message: str) -> None:
    (file := tmp_path / "file").write_bytes(content)
    with pytest.raises(Fault, match=f": {message}$"):
        read_header(file)


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Fault, match=r"/file: No such file or directory$"):
        read_header(tmp_path / "file")
