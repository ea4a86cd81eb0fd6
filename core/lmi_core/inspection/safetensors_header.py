"""The facts about weights in the header of a safetensors file."""

import re
from math import prod
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open

from lmi_core.errors.fault import Fault, unreadable

LFS_POINTER = b"version https://git-lfs"
MAX_REASON = 200  # characters, because the library's message may quote a header of megabytes
WIDTH = re.compile(r"\d+")  # bits, in the name of a type: F32, F8_E4M3


class WeightFacts(NamedTuple):
    """The type, in the format's name, and the shape of a weight."""

    data_type: str
    shape: tuple[int, ...]


def read_header(file: Path) -> dict[str, WeightFacts]:
    """Return the facts about each weight by name. Raise Fault if the file cannot be read or is truncated."""
    try:
        with file.open("rb") as content:
            if content.read(len(LFS_POINTER)) == LFS_POINTER:
                raise Fault(f"{file}: the file is a Git LFS pointer to the weights: fetch them with `git lfs pull`")
        with safe_open(file, framework="np") as weights:
            slices = {name: weights.get_slice(name) for name in weights.keys()}  # noqa: SIM118 -- not a dict
            return {name: WeightFacts(each.get_dtype(), tuple(each.get_shape())) for name, each in slices.items()}
    except OSError as error:
        raise Fault(unreadable(error, file)) from None
    except SafetensorError as error:
        reason = str(error).rpartition("header: ")[2][:MAX_REASON]
        raise Fault(f"{file}: the file is cut off, damaged, or not in the safetensors format: {reason}") from None


def weight_bytes(weight: WeightFacts) -> int:
    """Return the bytes of a weight; one byte per number for types of unknown width."""
    width = WIDTH.search(weight.data_type)
    return -(-prod(weight.shape) * (int(width[0]) if width else 8) // 8)
