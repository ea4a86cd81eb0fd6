"""What the header of a safetensors file says of its weights, read without the weights.

The format: https://github.com/huggingface/safetensors#format
"""

import json
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from lmi_core.inspection.fault import Fault

LENGTH_BYTES = 8
MAX_HEADER = 100_000_000  # bytes, as in the format's own implementation
BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}


class WeightFacts(NamedTuple):
    """The type, in the format's name, and the shape of a weight."""

    data_type: str
    shape: tuple[int, ...]


def read_header(file: Path) -> dict[str, WeightFacts]:
    """Return the facts of each weight by name. Raise Fault where the file cannot be read or is not whole."""
    try:
        size = file.stat().st_size
        with file.open("rb") as content:
            length = int.from_bytes(content.read(LENGTH_BYTES), "little")
            if length > min(MAX_HEADER, size - LENGTH_BYTES):
                raise Fault(f"{file}: the file is not in the safetensors format, or is cut off within its header")
            header = _json(file, content.read(length))
    except OSError as error:
        raise Fault(f"{file}: {error.strerror}") from None
    try:
        weights = {name: _weight(value) for name, value in header.items() if name != "__metadata__"}
        end = max((value["data_offsets"][1] for name, value in header.items() if name != "__metadata__"), default=0)
        whole = LENGTH_BYTES + length + end
    except (KeyError, TypeError, ValueError, IndexError):
        raise Fault(f"{file}: the header is not one of the safetensors format") from None
    if whole != size:
        what = "cut off" if size < whole else "too long"
        raise Fault(f"{file}: the file is {what}: it has {size:,} bytes, but its header tells of {whole:,}")
    return weights


def weight_bytes(weight: WeightFacts) -> int:
    """Return the bytes that a weight takes; types of no known width count one byte a number."""
    return prod(weight.shape) * BITS.get(weight.data_type, 8) // 8


def _json(file: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise Fault(f"{file}: the header is not JSON") from None
    if not isinstance(header, dict):
        raise Fault(f"{file}: the header is not a JSON object")
    return header


def _weight(value: dict[str, Any]) -> WeightFacts:
    weight = WeightFacts(str(value["dtype"]), tuple(int(size) for size in value["shape"]))
    begin, end = value["data_offsets"]
    if weight.data_type in BITS and end - begin != weight_bytes(weight):
        raise ValueError
    return weight
