"""Search for model directories under a path."""

import os
from collections.abc import Mapping
from pathlib import Path

from lmi_core.errors import ConfigurationError

PROPERTIES_FILE = "serving.properties"
MODEL_VARIABLES = ("HF_MODEL_ID", "OPTION_MODEL_ID")
WAYS = "the path of a model directory, or the id of a model of the Hugging Face hub (ORG/NAME)"
MARKERS = (PROPERTIES_FILE, "config.json", "model.py")


def is_model_directory(path: Path) -> bool:
    return any((path / marker).is_file() for marker in MARKERS)


def model_variable(environment: Mapping[str, str]) -> str | None:
    """Return the environment variable that names a model, if any; `OPTION_*` may be in any case."""
    given = {name.upper() if name.startswith("OPTION_") else name: name for name, value in environment.items() if value}
    return next((given[name] for name in MODEL_VARIABLES if name in given), None)


def find_model_directories(path: Path, environment: Mapping[str, str]) -> dict[str, Path]:
    """Return model directories by model name: the path itself or, for a model store, its sub-folders.

    A directory without files is a model too if the environment names one (`HF_MODEL_ID`, `OPTION_MODEL_ID`).
    """
    if not path.exists():
        raise ConfigurationError(f"{path} does not exist: give {WAYS}")
    if not path.is_dir():
        raise ConfigurationError(f"{path} is a file: give the path of the model directory that contains it")
    if not os.access(path, os.R_OK | os.X_OK):
        raise ConfigurationError(f"{path}: no permission to read this folder")
    if is_model_directory(path):
        return {path.resolve().name: path}
    found = {child.name: child for child in sorted(path.iterdir()) if child.is_dir() and is_model_directory(child)}
    if not found and model_variable(environment):
        return {path.resolve().name: path}
    if not found and (others := sorted(path.glob("*.gguf"))):
        raise ConfigurationError(f"{path} is not a model directory: give the path of a file in it, such as {others[0]}")
    if not found and (weights := sorted(path.glob("*.safetensors"))):
        raise ConfigurationError(f"{path} has {weights[0].name}, but no config.json, which describes the model")
    if not found:
        raise ConfigurationError(
            f"{path} contains no model: put a {PROPERTIES_FILE} there (with option.model_id), or the model's own "
            "files (config.json, *.safetensors, tokenizer.json)"
        )
    return found
