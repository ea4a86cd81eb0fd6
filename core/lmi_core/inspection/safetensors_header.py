"""The facts about weights in the header of a safetensors file.

The format: https://github.com/huggingface/safetensors#format
"""

import json
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from lmi_core.errors.fault import Fault, unreadable

LENGTH_BYTES = 8
MAX_HEADER = 100_000_000  # bytes, the limit of the format's own implementation
MAX_DIMENSIONS = 64
MAX_SHOWN = 200  # characters of a name quoted in a message
MAX_SIZE = 2**63  # of a dimension, and of an offset
LFS_POINTER = b"version https://git-lfs"
BITS = {
    "F4": 4,
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}


class WeightFacts(NamedTuple):
    """The type, in the format's name, and the shape of a weight."""

    data_type: str
    shape: tuple[int, ...]


def read_header(file: Path) -> dict[str, WeightFacts]:
    """Return the facts about each weight by name. Raise Fault if the file cannot be read or is truncated."""
    try:
        size = file.stat().st_size
        with file.open("rb") as content:
            start = content.read(LENGTH_BYTES)
            if LFS_POINTER.startswith(start) and start:
                raise Fault(f"{file}: the file is a pointer of Git LFS to the weights: fetch them with `git lfs pull`")
            length = int.from_bytes(start, "little")
            if length > min(MAX_HEADER, size - LENGTH_BYTES):
                raise Fault(f"{file}: the file is not in the safetensors format, or is cut off within its header")
            header = _json(file, content.read(length))
    except OSError as error:
        raise Fault(unreadable(error, file)) from None
    header.pop("__metadata__", None)
    weights = {name: _weight(file, name, value) for name, value in header.items()}
    whole = LENGTH_BYTES + length + max((value["data_offsets"][1] for value in header.values()), default=0)
    if whole != size:
        what = "cut off" if size < whole else "too long"
        raise Fault(f"{file}: the file is {what}: it has {size:,} bytes, but its header declares {whole:,}")
    return weights


def weight_bytes(weight: WeightFacts) -> int:
    """Return the bytes of a weight; one byte per number for types of unknown width."""
    return -(-prod(weight.shape) * BITS.get(weight.data_type, 8) // 8)


def _json(file: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise Fault(f"{file}: the header is not JSON") from None
    if not isinstance(header, dict):
        raise Fault(f"{file}: the header is not a JSON object")
    return header


def _weight(file: Path, name: str, value: Any) -> WeightFacts:
    try:
        weight = WeightFacts(str(value["dtype"]), tuple(value["shape"]))
        begin, end = value["data_offsets"]
        numbers = (*weight.shape, begin, end)
        if len(numbers) > MAX_DIMENSIONS or not all(type(each) is int and abs(each) < MAX_SIZE for each in numbers):
            raise TypeError
    except (KeyError, TypeError, ValueError):
        raise Fault(f"{file}: the header is not in the safetensors format") from None
    name = name[:MAX_SHOWN]
    if weight.data_type not in BITS:
        unknown = weight.data_type[:MAX_SHOWN]
        raise Fault(f"{file}: {name} has the unknown dtype {unknown}: known are {', '.join(sorted(BITS))}")
    if min(weight.shape, default=0) < 0 or end - begin != weight_bytes(weight):
        raise Fault(
            f"{file}: {name} takes {end - begin:,} bytes, but {weight.data_type} in the shape {list(weight.shape)} "
            f"takes {weight_bytes(weight):,}"
        )
    return weight
