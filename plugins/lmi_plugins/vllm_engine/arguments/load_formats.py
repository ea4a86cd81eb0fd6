"""The weights files that vLLM reads for a `load_format`, and the pickled ones among them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lmi_core.errors import ConfigurationError
from lmi_core.inspection.layers import pickled_layers
from lmi_core.inspection.pickles import OPTION, pickled_weights, refusal_faults

DETECTED = ("auto", "hf")  # safetensors if there are any, otherwise another format
SAFETENSORS = "safetensors"
PICKLED = ("pt", "npcache")


def json_object(arguments: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return an argument's object, by default empty. Raise ConfigurationError if it is not an object."""
    text = arguments.get(name, "{}")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"option.{name} must be a JSON object: {error}. Given: {text}") from None
    if not isinstance(value, dict):
        raise ConfigurationError(f"option.{name} must be a JSON object. Given: {text}")
    return value


def reads_usual_files(arguments: Mapping[str, str]) -> bool:
    """Return whether vLLM reads the weights from the model's own files in a usual format."""
    return _load_format(arguments) in (*DETECTED, SAFETENSORS, "pt")


def pickle_faults(arguments: Mapping[str, str], allowed: bool) -> list[str]:
    """Return a sentence for each pickled file that vLLM would read but must not."""
    if allowed:
        return []
    load_format = _load_format(arguments)
    faults = []
    if load_format in PICKLED:
        faults.append(
            f"option.load_format={load_format} reads pickles, which may contain code: leave it out and get the weights "
            f"as safetensors, or set {OPTION}=true if you trust their source"
        )
    for folder in _folders(arguments):
        files = pickled_weights(folder) if load_format in DETECTED else []
        faults += refusal_faults([*files, *pickled_layers(folder)], allowed)
    return faults


def without_pickles(arguments: Mapping[str, str], allowed: bool) -> dict[str, str]:
    """Return the arguments, with the safetensors format if vLLM downloads files that cannot be checked first."""
    if allowed or Path(arguments["model"]).is_dir() or _load_format(arguments) not in DETECTED:
        return {**arguments}
    return {**arguments, "load_format": SAFETENSORS}


def _load_format(arguments: Mapping[str, str]) -> str:
    return arguments.get("load_format", DETECTED[0])


def _folders(arguments: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders on this host of the model and of its draft model."""
    draft = json_object(arguments, "speculative_config")
    for source in (arguments.get("model"), draft.get("model")):
        if isinstance(source, str) and (folder := Path(source)).is_dir():
            yield folder
