"""Facts about a model from its files: size, digest, architecture, number of parameters."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from lmi_core.errors.fault import Fault
from lmi_core.inspection.safetensors_header import WeightFacts, read_header
from lmi_core.texts.json_files import read_json

FORMATS = {"safetensors": "*.safetensors", "gguf": "*.gguf", "pytorch": "*.bin"}
CONFIGURATION = "config.json"
# Types of the safetensors format, by the names that Ollama has for them.
TYPES = {"F64": "F64", "F32": "F32", "F16": "F16", "BF16": "BF16", "F8_E4M3": "FP8", "F8_E5M2": "FP8"}


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The facts about a model from its folder; empty for a model without one."""

    size: int = 0  # bytes
    modified: float | None = None  # seconds since 1970
    digest: str | None = None
    format: str = ""
    num_parameters: int | None = None
    element_type: str = ""  # the type of most parameters
    configuration: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def architecture(self) -> str:
        return str(self.configuration.get("model_type") or "")

    @property
    def text_configuration(self) -> Mapping[str, Any]:
        """The configuration of the language model, which vision models nest in their own."""
        inner = self.configuration.get("text_config")
        return inner if isinstance(inner, dict) else self.configuration

    @property
    def quantization(self) -> str:
        """The method of quantization with its bits, or the type of most parameters."""
        method = self.configuration.get("quantization_config")
        if not isinstance(method, dict):
            return self.element_type
        bits = method.get("bits") or method.get("w_bit")
        return str(method.get("quant_method", "")).upper() + (f"_{bits}BIT" if bits else "")


class FileState(NamedTuple):
    path: Path
    size: int
    modified: float


def read_files(folder: Path) -> ModelFiles:
    """Read the facts from the files of a folder; of weights, read only the headers."""
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    return _read(folder, tuple(FileState(path, (state := path.stat()).st_size, state.st_mtime) for path in paths))


@lru_cache(maxsize=64)  # clients ask repeatedly
def _read(folder: Path, states: tuple[FileState, ...]) -> ModelFiles:
    weights = {each.path: _weights(each.path) for each in states if each.path.suffix == ".safetensors"}
    configuration = _configuration(folder / CONFIGURATION)
    quantized = "quantization_config" in configuration  # packed: one element contains several parameters
    elements = _elements(facts for of_file in weights.values() for facts in of_file.values())
    # For weights, the digest includes only headers and sizes.
    told = hashlib.sha256()
    for path, size, _ in states:
        told.update(f"{path.name}\0{size}\0".encode())
        told.update(path.read_bytes() if path.suffix == ".json" else repr(weights.get(path)).encode())
    return ModelFiles(
        size=sum(each.size for each in states),
        modified=max((each.modified for each in states), default=None),
        digest=told.hexdigest(),
        format=next((name for name, pattern in FORMATS.items() if any(folder.glob(pattern))), ""),
        num_parameters=None if quantized else sum(elements.values()) or None,
        element_type=_type(max(elements, key=lambda name: elements[name])) if elements else "",
        configuration=configuration,
    )


def human_number(count: int) -> str:
    """Return a number of parameters in Ollama's form, such as `7.6B`."""
    for unit, size, digits in (("B", 10**9, 1), ("M", 10**6, 2), ("K", 10**3, 0)):
        if count >= size:
            return f"{count / size:.{digits}f}{unit}"
    return str(count)


def _type(name: str) -> str:
    return TYPES.get(name, name)


def _configuration(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except Fault:
        return {}


def _weights(path: Path) -> dict[str, WeightFacts]:
    try:
        return read_header(path)
    except Fault:
        return {}  # the engine reports it on loading


def _elements(weights: Iterable[WeightFacts]) -> Counter[str]:
    """Return the number of elements of each type."""
    counts: Counter[str] = Counter()
    for weight in weights:
        counts[weight.data_type] += math.prod(weight.shape)
    return counts
