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
    ("header", "data", "message"),
    [
        (WEIGHTS, 20, "the file is cut off: it has {size} bytes, but its header declares {whole}"),
        (WEIGHTS, 27, "the file is too long: it has {size} bytes, but its header declares {whole}"),
        ([], 0, "the header is not a JSON object"),
        ({"a": {"dtype": "F32", "shape": [2]}}, 8, "the header is not in the safetensors format"),
        (
            {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
            4,
            "a takes 4 bytes, but F32 in the shape [2] takes 8",
        ),
        (
            {"a": {"dtype": "I8", "shape": [-4], "data_offsets": [4, 0]}},
            0,
            "a takes -4 bytes, but I8 in the shape [-4]",
        ),
        ({"a": {"dtype": "Q7", "shape": [2], "data_offsets": [0, 4]}}, 4, "a has the unknown dtype Q7: known are BF16"),
        ({"a": 5}, 0, "the header is not in the safetensors format"),
        *(
            (
                {"a": {"dtype": "F32", "shape": shape, "data_offsets": offsets}},
                4,
                "the header is not in the safetensors",
            )
            for shape, offsets in (
                ([float("inf")], [0, 4]),
                ([10**400], [0, 4]),
                ([2**62] * 100_000, [0, 4]),
                ([1], ["0", "4"]),
                ([1.0], [0, 4]),
                ([True], [0, 4]),
                ([1], [0, 2**64]),
                ([1], [0, 2, 4]),
                ("1", [0, 4]),
                ({"1": 1}, [0, 4]),
            )
        ),
    ],
)
def test_damaged_files(tmp_path: Path, header: object, data: int, message: str) -> None:
    file = save(tmp_path / "file", header, data)
    size = file.stat().st_size
    with pytest.raises(Fault) as caught:
        read_header(file)
    assert str(caught.value).startswith(f"{file}: {message.format(size=size, whole=size - data + 26)}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is not in the safetensors format, or is cut off within its header"),
        (b"\xff" * 8 + b"{}", "the file is not in the safetensors format, or is cut off within its header"),
        ((200_000).to_bytes(8, "little") + b"[" * 200_000, "the header is not JSON"),
        (b"<html>404 Not Found</html>", "the file is not in the safetensors format, or is cut off within its header"),
        ((2).to_bytes(8, "little") + b"{]", "the header is not JSON"),
        (b"version https://git-lfs.github.com/spec/v1\n", "the file is a pointer of Git LFS to the weights: fetch .*"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, message: str) -> None:
    (file := tmp_path / "file").write_bytes(content)
    with pytest.raises(Fault, match=f": {message}$"):
        read_header(file)


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Fault, match=r"/file: No such file or directory$"):
        read_header(tmp_path / "file")
