import json
from pathlib import Path

import pytest

from lmi_core.inspection.checkpoint import INDEX, abridge, read_checkpoint
from tests.core.inspection.test_safetensors_header import WEIGHTS, save

SHARDS = {"a": "model-1.safetensors", "b": "model-1.safetensors", "c": "model-2.safetensors"}
OTHER = {"c": {"dtype": "I8", "shape": [1], "data_offsets": [0, 1]}}


def test_single_file(tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors", WEIGHTS)
    checkpoint = read_checkpoint(tmp_path)
    assert (set(checkpoint.weights), checkpoint.faults, checkpoint.is_known) == ({"a", "b"}, [], True)


def test_shards(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": SHARDS}))
    save(tmp_path / "model-1.safetensors", WEIGHTS)
    assert read_checkpoint(tmp_path).faults == [f"{tmp_path}: 1 of 2 shards missing: model-2.safetensors"]
    save(tmp_path / "model-2.safetensors", OTHER, data=1)
    checkpoint = read_checkpoint(tmp_path)
    assert (set(checkpoint.weights), checkpoint.faults) == ({"a", "b", "c"}, [])


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", "the file is not JSON"),
        ("{}", "`weight_map` must contain the file"),
        ('{"weight_map": {"a": 5}}', "`weight_map"),
    ],
)
def test_damaged_index(tmp_path: Path, index: str, message: str) -> None:
    (tmp_path / INDEX).write_text(index)
    (fault,) = read_checkpoint(tmp_path).faults
    assert fault.startswith(f"{tmp_path / INDEX}: {message}")


def test_every_damaged_shard_is_told(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": SHARDS}))
    for name in ("model-1.safetensors", "model-2.safetensors"):
        (tmp_path / name).write_bytes(b"")
    faults = read_checkpoint(tmp_path).faults
    assert [fault.split(": ")[0] for fault in faults] == [
        str(tmp_path / f"model-{number}.safetensors") for number in (1, 2)
    ]


@pytest.mark.parametrize("index", ["model.safetensors.index.json", "own.json"])
def test_shards_of_a_named_index(tmp_path: Path, index: str) -> None:
    (tmp_path / index).write_text(json.dumps({"weight_map": {"a": "own-1.safetensors"}}))
    save(tmp_path / "own-1.safetensors", WEIGHTS)
    save(tmp_path / "model.safetensors", OTHER, data=1)
    checkpoint = read_checkpoint(tmp_path, index)
    assert (set(checkpoint.weights), checkpoint.pickled, checkpoint.faults) == ({"a", "b"}, [], [])


def test_no_weights(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path).faults[0].startswith(f"{tmp_path}: no weights")
    (tmp_path / "model.gguf").touch()
    checkpoint = read_checkpoint(tmp_path)
    assert (checkpoint.faults, checkpoint.others, checkpoint.is_known) == ([], ["model.gguf"], False)
    save(tmp_path / "model.safetensors", {}, data=0)
    assert read_checkpoint(tmp_path).faults == [f"{tmp_path}: no weights: the files for them contain none"]


def test_engines_of_tensorrt(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "rank0.engine").touch()
    (fault,) = read_checkpoint(tmp_path).faults
    assert fault.startswith(f"{tmp_path}: TensorRT engines (rank0.engine) run only in NVIDIA's own runtime: set option")


def test_pickled_weights(tmp_path: Path) -> None:
    (file := tmp_path / "pytorch_model.bin").write_bytes(b"a pickle")
    checkpoint = read_checkpoint(tmp_path)
    assert (checkpoint.pickled, checkpoint.faults) == ([file], [])


def test_missing_pickled_shards(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin.index.json").write_text('{"weight_map": {"a": "pytorch_model-1.bin"}}')
    assert read_checkpoint(tmp_path).faults == [f"{tmp_path}: 1 of 1 shards missing: pytorch_model-1.bin"]


def test_names() -> None:
    assert abridge(["b", "a"]) == "a, b"
    assert abridge("edcba") == "a, b, c and 2 more"
