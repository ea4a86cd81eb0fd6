"""Absurd sizes in a model's config.json; building such a model would take days."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lmi_core.errors.fault import Fault
from lmi_core.texts.json_files import read_json

MAX_BYTES = 16 * 2**20  # of the file; real ones have a few thousand
MAX_LAYERS = 2000  # models with more than a hundred are rare
LAYERS = frozenset({"decoder_layers", "encoder_layers", "n_layer", "n_layers", "num_hidden_layers", "num_layers"})


def absurd_sizes(file: Path) -> Iterator[str]:
    """Yield the absurd sizes in a config.json; nothing if it cannot be read, which other checks report."""
    try:
        size = file.stat().st_size
        if size > MAX_BYTES:
            yield f"{file}: the file has {size} bytes; at most {MAX_BYTES} are read"
            return
        config = read_json(file)
    except (OSError, Fault):
        return
    for name, value in _numbers(config):
        if name in LAYERS and value > MAX_LAYERS:
            yield f"{file}: `{name}` must be at most {MAX_LAYERS}. Given: {value}"


def _numbers(config: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the integers of a configuration and of those of its parts, such as `text_config`."""
    for name, value in config.items():
        if isinstance(value, int):
            yield name, value
        elif isinstance(value, dict):
            yield from _numbers(value)
