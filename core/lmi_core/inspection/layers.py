"""Files of sentence-transformers: the layers after a model, each in a folder listed in modules.json, and prompts."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from lmi_core.errors.fault import Fault
from lmi_core.texts.json_files import read_value

MODULES = "modules.json"
PROMPTS = "config_sentence_transformers.json"
LAYER = "model.safetensors"
PICKLED_LAYER = "pytorch_model.bin"


def pickled_layers(folder: Path) -> list[Path]:
    """Return the pickled files of layers without safetensors."""
    layers = [folder / path for path in _paths(folder) if path not in ("", ".")]
    return [file for path in layers if (file := path / PICKLED_LAYER).exists() and not (path / LAYER).is_file()]


def outside_layers(folder: Path) -> list[str]:
    """Return a fault for each layer whose path points outside the model's folder."""
    return [outside_layer(folder, path) for path in _paths(folder) if is_outside(path)]


def outside_layer(folder: Path, path: str) -> str:
    """Return the fault of a layer outside the model's folder."""
    return f"{folder / MODULES}: the path of a module must be in the model's own folder. Given: {path}"


def _paths(folder: Path) -> Iterator[str]:
    try:
        modules = read_value(folder / MODULES)
    except Fault:  # there are none, or the reader reports the fault
        return
    for module in modules if isinstance(modules, list) else ():
        if isinstance(module, dict) and isinstance(path := module.get("path"), str):
            yield path


def is_outside(name: str) -> bool:
    """Return whether a name points outside its folder."""
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts


def prompts_of(config: Any) -> dict[str, str]:
    """Return the prompts in the content of `config_sentence_transformers.json`, by name."""
    prompts = config.get("prompts") if isinstance(config, dict) else None
    return {name: text for name, text in prompts.items() if isinstance(text, str)} if isinstance(prompts, dict) else {}


def read_prompts(folder: Path) -> dict[str, str]:
    """Return the prompts of the model in the folder; none without a valid file."""
    try:
        return prompts_of(read_value(folder / PROMPTS))
    except Fault:
        return {}
