"""Conversion between tensors and JSON, for KServe's inference protocol (v2) and Triton's generate extension."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lmi_core.errors import InvalidPayload
from lmi_core.generation.tensors import NUMPY_TYPES, Tensor, TensorSpecification, TensorType
from lmi_core.payloads.payload import quote

if TYPE_CHECKING:
    import numpy

INTEGERS: tuple[TensorType, ...] = ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")
ELEMENT_KINDS: dict[TensorType, set[type]] = {"BOOL": {bool}, "BYTES": {str}, **{each: {int} for each in INTEGERS}}


def from_json(name: str, dtype: TensorType, shape: Iterable[int], data: object) -> Tensor:
    """Return the tensor of values in row-major order, nested or flat. Raise InvalidPayload if they do not fit."""
    dimensions = tuple(shape)
    nesting, values = _flatten(name, data)
    if len(values) != math.prod(dimensions):
        raise InvalidPayload(
            f"`{name}` of shape {list(dimensions)} must have {math.prod(dimensions)} elements. Given: {len(values)}"
        )
    if len(nesting) > 1 and nesting != dimensions:
        raise InvalidPayload(
            f"`{name}` must have data of shape {list(dimensions)}, or a flat list. Given: {quote([*nesting])}"
        )
    return Tensor(dtype, dimensions, _pack(name, dtype, values))


def fit(specification: TensorSpecification, value: object) -> Tensor:
    """Return the tensor of a value without a declared shape: nested lists define it, otherwise the specification does.

    In the latter case, as in Triton, the last dimension of variable size takes all elements, and the others are 1.
    """
    nesting, values = _flatten(specification.name, value)
    nested = len(nesting) > 1 and len(nesting) == len(specification.shape)
    shape = nesting if nested else _fill(specification, len(values))
    return from_json(specification.name, specification.dtype, shape, value if nested else values)


def flat_array(tensor: Tensor) -> "numpy.ndarray[Any, Any] | list[str]":
    """Return the elements in row-major order, for orjson with OPT_SERIALIZE_NUMPY."""
    if tensor.dtype == "BYTES":
        return [element.decode(errors="replace") for element in tensor.array().ravel().tolist()]
    return tensor.array().ravel()


def _fill(specification: TensorSpecification, count: int) -> tuple[int, ...]:
    fixed = math.prod(size for size in specification.shape if size != -1)
    free = [place for place, size in enumerate(specification.shape) if size == -1]
    shape = [1 if size == -1 else size for size in specification.shape]
    if free and count % fixed == 0:
        shape[free[-1]] = count // fixed
    return tuple(shape)


def _flatten(name: str, data: object) -> tuple[tuple[int, ...], list[Any]]:
    """Return the shape of nested lists, and their flat values. Raise InvalidPayload if lists differ in length."""
    lengths: list[int] = []
    values = [data]
    while values and isinstance(values[0], list):
        lengths.append(len(values[0]))
        if any(not isinstance(value, list) or len(value) != lengths[-1] for value in values):
            raise InvalidPayload(f"`{name}` must have nested lists of equal length. Given: {quote(data)}")
        values = [inner for value in values if isinstance(value, list) for inner in value]
    return tuple(lengths), values


def _pack(name: str, dtype: TensorType, values: list[Any]) -> bytes:
    kinds = ELEMENT_KINDS.get(dtype, {int, float})
    if kinds == {int}:  # some clients write every number as a double
        values = [int(value) if isinstance(value, float) and value.is_integer() else value for value in values]
    for value in values:
        if type(value) not in kinds:
            raise InvalidPayload(f"`{name}` must contain values of type {dtype}. Given: {quote(value)}")
    try:
        return _array(dtype, values)
    except OverflowError:
        raise InvalidPayload(f"`{name}` contains a value that does not fit {dtype}. Given: {quote(values)}") from None


def _array(dtype: TensorType, values: list[Any]) -> bytes:
    """Return the encoded values. Raise OverflowError if one does not fit the type."""
    import numpy

    if dtype == "BYTES":
        return Tensor.from_array(numpy.array([*values, None], dtype=object)[:-1]).data
    with numpy.errstate(over="ignore"):  # infinite values are rejected below
        array = numpy.array(values, dtype="<f4" if dtype == "BF16" else NUMPY_TYPES[dtype])
    if array.dtype.kind == "f" and not numpy.isfinite(array).all():
        raise OverflowError
    return _brain_floats(array) if dtype == "BF16" else Tensor.from_array(array).data


def _brain_floats(array: "numpy.ndarray[Any, Any]") -> bytes:
    """Return bfloat16: the upper halves of float32, rounded to nearest, ties to even."""
    bits = array.view("<u4").astype("<u8")
    return bytes(((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes())
