from pathlib import Path

import pytest

from lmi_core.configuration.model_directory import WAYS, find_model_directories, is_model_directory, model_variable
from lmi_core.errors import ConfigurationError


def write(directory: Path, *files: str) -> Path:
    for file in files:
        path = directory / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return directory


def error_of(path: Path) -> str:
    with pytest.raises(ConfigurationError) as raised:
        find_model_directories(path, {})
    return raised.value.message


@pytest.mark.parametrize("file", ["serving.properties", "config.json", "model.py"])
def test_one_file_makes_a_model_directory(tmp_path: Path, file: str) -> None:
    assert not is_model_directory(tmp_path)
    write(tmp_path, file)
    assert is_model_directory(tmp_path)
    assert find_model_directories(tmp_path, {}) == {tmp_path.name: tmp_path}


def test_folder_of_a_marker_s_name_is_no_marker(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    assert not is_model_directory(tmp_path)


def test_model_store(tmp_path: Path) -> None:
    write(tmp_path, "b/config.json", "a/serving.properties", "c/model.py", "notes/readme.txt", "d/e/config.json")
    found = find_model_directories(tmp_path, {})
    assert found == {name: tmp_path / name for name in ("a", "b", "c")}
    assert list(found) == ["a", "b", "c"]


def test_model_directory_is_not_searched_for_others(tmp_path: Path) -> None:
    write(tmp_path, "serving.properties", "adapters/one/config.json")
    assert find_model_directories(tmp_path, {}) == {tmp_path.name: tmp_path}


@pytest.mark.parametrize("variable", ["HF_MODEL_ID", "OPTION_MODEL_ID"])
def test_environment_makes_an_empty_directory_a_model(tmp_path: Path, variable: str) -> None:
    assert find_model_directories(tmp_path, {variable: "gpt2"}) == {tmp_path.name: tmp_path}


@pytest.mark.parametrize("environment", [{"HF_MODEL_ID": ""}, {"MODEL_ID": "gpt2"}])
def test_environment_that_names_no_model(tmp_path: Path, environment: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="contains no model"):
        find_model_directories(tmp_path, environment)


def test_current_directory_has_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write(tmp_path / "mine", "config.json")
    monkeypatch.chdir(directory)
    assert find_model_directories(Path("."), {}) == {"mine": Path(".")}


def test_missing_path(tmp_path: Path) -> None:
    assert error_of(tmp_path / "nowhere") == (f"{tmp_path / 'nowhere'} does not exist: give {WAYS}")


def test_file(tmp_path: Path) -> None:
    write(tmp_path, "serving.properties")
    assert error_of(tmp_path / "serving.properties").endswith(
        "is a file: give the path of the model directory that contains it"
    )


def test_empty_directory(tmp_path: Path) -> None:
    assert error_of(tmp_path).startswith(f"{tmp_path} contains no model: put a serving.properties there")


def test_weights_alone(tmp_path: Path) -> None:
    write(tmp_path, "model.safetensors")
    assert error_of(tmp_path) == f"{tmp_path} has model.safetensors, but no config.json, which describes the model"


def test_the_variable_that_names_a_model() -> None:
    both = {"OPTION_MODEL_ID": "a", "HF_MODEL_ID": "b"}
    assert model_variable(both) == "HF_MODEL_ID"
    assert model_variable(both | {"HF_MODEL_ID": ""}) == "OPTION_MODEL_ID"
    assert model_variable({"OPTION_model_id": "a"}) == "OPTION_model_id"
    assert model_variable({"MODEL_ID": "a", "HF_model_id": "b"}) is None
