"""Conversion of arrays and lists to tensors."""

import sys
from typing import TYPE_CHECKING, Any

import numpy

from lmi_core.generation.tensors import NUMPY_TYPES, Tensor, TensorType

if TYPE_CHECKING:
    import torch

KINDS = {"BOOL": "b", "FP16": "biuf", "FP32": "biuf", "FP64": "biuf"}  # numpy's, of lists that become such a tensor
INTEGERS = "biu"


def as_tensor(value: object, dtype: TensorType) -> Tensor:
    """Return a tensor; arrays keep their type, and lists get `dtype`. Raise ValueError for anything else."""
    if isinstance(value, Tensor):
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _from_torch(value)
    if isinstance(value, numpy.ndarray | numpy.generic):
        return Tensor.from_array(numpy.asarray(value))
    return Tensor.from_array(_from_list(value, dtype))


def _from_torch(value: "torch.Tensor") -> Tensor:
    import torch

    value = value.detach().cpu().contiguous()
    if value.dtype == torch.bfloat16:  # numpy has no such type
        return Tensor("BF16", tuple(value.shape), value.view(torch.int16).numpy().tobytes())
    return Tensor.from_array(value.numpy())


def _from_list(value: object, dtype: TensorType) -> "numpy.ndarray[Any, Any]":
    array = numpy.asarray(value)  # raises ValueError where rows are of different lengths
    if array.size == 0:
        return array.astype(NUMPY_TYPES[dtype])
    if array.dtype.kind not in KINDS.get(dtype, INTEGERS):
        raise ValueError(f"a list of {array.dtype}")
    if dtype not in KINDS and not _within(array, NUMPY_TYPES[dtype]):
        raise ValueError("a list with numbers out of that type's range")
    return array.astype(NUMPY_TYPES[dtype])


def _within(array: "numpy.ndarray[Any, Any]", name: str) -> bool:
    bounds = numpy.iinfo(name)
    return bool(bounds.min <= int(array.min()) and int(array.max()) <= bounds.max)
