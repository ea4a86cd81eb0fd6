from pathlib import Path

import pytest

from lmi_core.configuration.model_source import is_on_hub, model_source
from lmi_core.configuration.properties import ModelProperties
from lmi_core.errors import ConfigurationError


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model directory beside a folder of weights, `elsewhere`; the current directory holds `near`."""
    for folder in ("model/weights", "elsewhere", "near"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.json").touch()
    (tmp_path / "model" / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "model"


def source(directory: Path, model_id: str | None) -> str:
    return model_source(directory, ModelProperties(model_id=model_id))


def error_of(directory: Path, model_id: str | None) -> str:
    with pytest.raises(ConfigurationError) as raised:
        source(directory, model_id)
    return raised.value.message


def test_model_directory_holds_the_weights(directory: Path) -> None:
    (directory / "config.json").touch()
    assert source(directory, None) == str(directory)


def test_no_weights_and_no_model_id(directory: Path) -> None:
    assert error_of(directory, None) == (
        f"{directory} contains no config.json: set option.model_id, or put the model's files there"
    )


@pytest.mark.parametrize("model_id", ["weights", "./weights", "../elsewhere"])
def test_folder_relative_to_the_model_directory(directory: Path, model_id: str) -> None:
    assert source(directory, model_id) == str(directory / model_id)


def test_absolute_folder(directory: Path) -> None:
    elsewhere = str(directory.parent / "elsewhere")
    assert source(directory, elsewhere) == elsewhere


def test_folder_relative_to_the_current_directory(directory: Path) -> None:
    assert source(directory, "near") == "near"


def test_model_directory_comes_before_the_current_directory(directory: Path) -> None:
    (directory / "near").mkdir()
    (directory / "near" / "config.json").touch()
    assert source(directory, "near") == str(directory / "near")


@pytest.mark.parametrize("model_id", ["gpt2", "meta-llama/Llama-2-7b-hf"])
def test_hub_id(directory: Path, model_id: str) -> None:
    assert source(directory, model_id) == model_id


def test_s3_url(directory: Path) -> None:
    assert source(directory, "s3://bucket/model/") == "s3://bucket/model/"


def test_archives(directory: Path) -> None:
    assert source(directory, "https://host/weights.zip?x=1") == "https://host/weights.zip?x=1"
    (directory / "weights.tar.gz").touch()
    assert source(directory, "weights.tar.gz") == str(directory / "weights.tar.gz")
    assert error_of(directory, "./other.zip") == "option.model_id=./other.zip: there is no such folder"


def test_wrong_s3_url(directory: Path) -> None:
    assert error_of(directory, "s3:///model") == "s3:///model is not an S3 URL: give s3://bucket/folder/"


@pytest.mark.parametrize("model_id", ["djl://ai.djl/model", "S3://bucket/model"])
def test_other_url(directory: Path, model_id: str) -> None:
    assert error_of(directory, model_id) == (
        f"option.model_id={model_id} is not a supported URL: give s3://bucket/folder/, the URL of an archive, the path "
        "of a folder, or a hub id"
    )


@pytest.mark.parametrize(("model", "expected"), [("gpt2", True), ("org/name", True), ("near", False), ("./x", False)])
def test_what_can_only_be_a_hub_id(directory: Path, model: str, expected: bool) -> None:
    assert is_on_hub(model) is expected


def test_folder_without_a_model(directory: Path) -> None:
    assert error_of(directory, "empty") == "option.model_id=empty: there is no config.json in that folder"


@pytest.mark.parametrize("model_id", ["./nowhere", "../nowhere", "/no/where", "~/model"])
def test_folder_that_does_not_exist(directory: Path, model_id: str) -> None:
    assert error_of(directory, model_id) == f"option.model_id={model_id}: there is no such folder"


@pytest.mark.parametrize(
    ("model_id", "hint"),
    [
        ("{{model_id}}", "Is it a placeholder that was not replaced?"),
        ("${MODEL_ID}", "Is it a placeholder that was not replaced?"),
        ("<your model>", "Is it a placeholder that was not replaced?"),
        ('"org/name"', "Quotes are not removed: they are part of the value"),
        ("org/name # the small one", "Comments must be on separate lines: this one is part of the value"),
    ],
)
def test_what_is_no_model(directory: Path, model_id: str, hint: str) -> None:
    assert error_of(directory, model_id) == (
        f"option.model_id={model_id} is neither a folder nor the id of a model. {hint}"
    )


def test_folder_with_such_a_name(directory: Path) -> None:
    (directory / "a # b").mkdir()
    (directory / "a # b" / "config.json").touch()
    assert source(directory, "a # b") == str(directory / "a # b")
