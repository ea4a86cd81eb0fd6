"""Faults of a model's files, of which each is told by name, and all at once."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lmi_core.inspection.checkpoint import read_checkpoint
from lmi_core.inspection.model_folder import inspect_folder
from lmi_core.inspection.safetensors_header import WeightFacts

HELLO = Path(__file__).parents[3] / "examples" / "hello"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(HELLO, tmp_path / "hello", ignore=shutil.ignore_patterns("*.py", "*.md")))


def faults(folder: Path) -> list[str]:
    return [
        fault.removeprefix(f"{folder}").removeprefix("/") for fault in inspect_folder(folder, read_checkpoint(folder))
    ]


def test_model_without_faults(folder: Path) -> None:
    assert faults(folder) == []


def replace_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def change_config(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda folder: (folder / "config.json").write_text("{"), "config.json: the file is not JSON: "),
        (lambda folder: (folder / "config.json").write_text("[]"), "config.json: the file must contain a JSON object"),
        (
            lambda folder: change_config(folder, model_type=None),
            "config.json: `model_type` must name the model's archi",
        ),
        (
            lambda folder: change_config(folder, num_hidden_layers=10**9),
            "config.json: `num_hidden_layers` must be at most 2000. Given: 1000000000",
        ),
        (
            lambda folder: change_config(folder, text_config={"num_layers": 10**9}),
            "config.json: `num_layers` must be at most 2000. Given: 1000000000",
        ),
        (
            lambda folder: change_config(folder, padding=" " * 2**24),
            "config.json: the file has 16777",
        ),
        (
            lambda folder: (folder / "config.json").write_text('{"a":' + "[" * 100_000),
            "config.json: the file is not JSON: maximum recursion depth exceeded",
        ),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), "tokenizer.json: the file is not JSON: "),
        (
            lambda folder: (folder / "tokenizer.json").write_text("{}"),
            ": the tokenizer cannot be loaded: the key 'added_tokens' is missing",
        ),
        (
            lambda folder: (folder / "tokenizer.json").unlink(),
            ": there is no tokenizer: neither tokenizer.json nor another vocabulary file",
        ),
        (
            lambda folder: (folder / "generation_config.json").write_text('{"eos_token_id": "x"}'),
            "generation_config.json: `eos_token_id` must be a token id or several. Given: x",
        ),
        (
            lambda folder: (folder / "chat_template.jinja").write_bytes(b"\xe9"),
            "chat_template.jinja: the file must be UTF-8 text: ",
        ),
        (
            lambda folder: replace_by_folder(folder / "tokenizer.json"),
            "tokenizer.json: a folder, where a file is expec",
        ),
        (lambda folder: replace_by_folder(folder / "config.json"), "config.json: a folder, where a file is expected"),
        (lambda folder: replace_by_folder(folder / "model.safetensors"), "model.safetensors: a folder, where a file i"),
        (
            lambda folder: (folder / "chat_template.jinja").write_text("{% if %}"),
            ": the chat template is not Jinja: line 1",
        ),
        (
            lambda folder: (folder / "model.safetensors").write_bytes(b""),
            "model.safetensors: the file is cut off, damaged, or not in the ",
        ),
        (
            lambda folder: (folder / "more.bin").symlink_to("../blobs/a1"),
            "more.bin: a link to ../blobs/a1, which does no",
        ),
    ],
)
def test_faults(folder: Path, damage: Callable[[Path], object], expected: str) -> None:
    damage(folder)
    (fault,) = faults(folder)
    assert fault.startswith(expected)


def test_template_that_refuses_a_chat_is_right(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ raise_exception('a system message comes first') }}")
    assert faults(folder) == []


def test_all_faults_are_told_at_once(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    (folder / "tokenizer.json").write_text("")
    (folder / "model.safetensors").unlink()
    assert [fault.split(":")[0] for fault in faults(folder)] == ["config.json", "tokenizer.json", ""]


def test_files_without_permission(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = folder / "generation_config.json"
    monkeypatch.setattr("os.access", lambda file, mode: Path(file) != refused)  # root may read any file
    assert faults(folder) == ["generation_config.json: no permission to read it"]


def test_tokenizer_of_another_model(folder: Path) -> None:
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["vocab"] |= {"zzz": 1024, "zzzz": 1025}
    file.write_text(json.dumps(tokenizer))
    without = "no embedding for 2 of its tokens, from 1024 ('zzz') on: the model has 1024"
    assert faults(folder) == [f": the tokenizer is not this model's: {without}"]
    checkpoint = read_checkpoint(folder)
    checkpoint.weights["encoder.embed_tokens.weight"] = WeightFacts("F32", (2048, 8))
    assert inspect_folder(folder, checkpoint) == []  # the encoder's tokens are different ones
