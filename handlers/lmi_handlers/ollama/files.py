"""Facts about a model from its files: size, digest, architecture, number of parameters."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from lmi_core.errors.fault import Fault
from lmi_core.inspection.safetensors_header import WeightFacts, read_header
from lmi_core.texts.json_files import read_json

FORMATS = {"safetensors": "*.safetensors", "gguf": "*.gguf", "pytorch": "*.bin"}
CONFIGURATION = "config.json"
T = TypeVar("T")
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


def read_files(folder: Path) -> ModelFiles:
    """Read the facts from the files of a folder; of weights, read only the headers."""
    states = {path: path.stat() for path in sorted(folder.iterdir()) if path.is_file()}
    weights = {path: _read_or_empty(read_header, path) for path in states if path.suffix == ".safetensors"}
    configuration = _read_or_empty(read_json, folder / CONFIGURATION)
    quantized = "quantization_config" in configuration  # packed: one element contains several parameters
    elements = _elements(facts for of_file in weights.values() for facts in of_file.values())
    most = max(elements, key=lambda name: elements[name], default="")
    # For weights, the digest includes only headers and sizes.
    hashed = hashlib.sha256()
    for path, state in states.items():
        hashed.update(f"{path.name}\0{state.st_size}\0".encode())
        hashed.update(path.read_bytes() if path.suffix == ".json" else repr(weights.get(path)).encode())
    return ModelFiles(
        size=sum(state.st_size for state in states.values()),
        modified=max((state.st_mtime for state in states.values()), default=None),
        digest=hashed.hexdigest(),
        format=next((name for name, pattern in FORMATS.items() if any(folder.glob(pattern))), ""),
        num_parameters=None if quantized else sum(elements.values()) or None,
        element_type=TYPES.get(most, most),
        configuration=configuration,
    )


def human_number(count: int) -> str:
    """Return a number of parameters in Ollama's form, such as `7.6B`."""
    for unit, size, digits in (("B", 10**9, 1), ("M", 10**6, 2), ("K", 10**3, 0)):
        if count >= size:
            return f"{count / size:.{digits}f}{unit}"
    return str(count)


def _read_or_empty(read: Callable[[Path], dict[str, T]], path: Path) -> dict[str, T]:
    """Return the contents of a file; none of a damaged one, which the engine reports when it loads it."""
    try:
        return read(path)
    except Fault:
        return {}


def _elements(weights: Iterable[WeightFacts]) -> Counter[str]:
    """Return the number of elements of each type."""
    counts: Counter[str] = Counter()
    for weight in weights:
        counts[weight.data_type] += math.prod(weight.shape)
    return counts
