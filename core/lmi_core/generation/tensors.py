"""Named tensors, for backends that accept them as requests; numpy is imported only for arrays."""

import math
import struct
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

if TYPE_CHECKING:
    import numpy

TensorType = Literal[
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "BF16",
    "BYTES",
]
"""KServe's names of types (v2), https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol."""

NUMPY_TYPES: dict[TensorType, str] = {  # numpy's codes, which include the size in bytes; BF16 and BYTES have none
    "BOOL": "b1",
    "UINT8": "u1",
    "UINT16": "u2",
    "UINT32": "u4",
    "UINT64": "u8",
    "INT8": "i1",
    "INT16": "i2",
    "INT32": "i4",
    "INT64": "i8",
    "FP16": "f2",
    "FP32": "f4",
    "FP64": "f8",
}
ELEMENT_SIZES: dict[TensorType, int] = {dtype: int(code[1:]) for dtype, code in NUMPY_TYPES.items()} | {"BF16": 2}
_BY_CODE = {code: dtype for dtype, code in NUMPY_TYPES.items()}
LENGTH_SIZE = 4  # bytes of the length in front of each BYTES element
# The codes of the module struct, in the same order
STRUCT_FORMATS: dict[TensorType, str] = dict(zip(NUMPY_TYPES, "?BHIQbhiqefd", strict=True))


MAX_DIMENSIONS = 32


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named tensor's type, shape and data. Raise ValueError if these do not match."""

    dtype: TensorType
    shape: tuple[int, ...]
    data: bytes  # row-major, little-endian; each BYTES element follows its 4-byte length

    def __post_init__(self) -> None:
        if len(self.shape) > MAX_DIMENSIONS:
            raise ValueError(f"a tensor must have at most {MAX_DIMENSIONS} dimensions. Given: {len(self.shape)}")
        count = math.prod(self.shape)
        if self.dtype == "BYTES":
            unit, expected, given = "elements", count, sum(1 for _ in _elements(self.data))
        else:
            unit, expected, given = "bytes", count * ELEMENT_SIZES[self.dtype], len(self.data)
        if given != expected:
            raise ValueError(f"{self.dtype} of shape {list(self.shape)} must have {expected} {unit}. Given: {given}")

    @classmethod
    def from_array(cls, array: "numpy.ndarray[Any, Any]") -> Self:
        """Return the tensor of an array; str and bytes become BYTES. Raise ValueError for types unknown to KServe."""
        if array.dtype.kind in "OSU":
            return cls("BYTES", array.shape, b"".join(_encode_element(element) for element in array.ravel().tolist()))
        dtype = _BY_CODE.get(array.dtype.str[1:])
        if dtype is not None:
            little_endian = array.astype(f"<{array.dtype.str[1:]}", copy=False)
            return cls(dtype, array.shape, little_endian.tobytes())
        raise ValueError(f"arrays of type {array.dtype} cannot be KServe tensors")

    @classmethod
    def of(cls, dtype: TensorType, shape: tuple[int, ...], numbers: Sequence[float]) -> Self:
        """Return a tensor of numbers, not BF16 or BYTES, without numpy. Raise struct.error for values out of range."""
        return cls(dtype, shape, struct.pack(f"<{len(numbers)}{STRUCT_FORMATS[dtype]}", *numbers))

    def array(self) -> "numpy.ndarray[Any, Any]":
        """Return the values as an array; BF16 becomes float32 of equal values, BYTES an array of bytes objects."""
        import numpy

        if self.dtype == "BYTES":
            return numpy.array([*_elements(self.data), None], dtype=object)[:-1].reshape(self.shape)
        if self.dtype == "BF16":  # the upper half of a float32
            bits = numpy.frombuffer(self.data, "<u2").astype("<u4") << 16
            return bits.view("<f4").reshape(self.shape)
        return numpy.frombuffer(self.data, f"<{NUMPY_TYPES[self.dtype]}").reshape(self.shape)


@dataclass(frozen=True, slots=True)
class TensorSpecification:
    """The name, type and shape of a backend's input or output."""

    name: str
    dtype: TensorType
    shape: tuple[int, ...]  # -1 means any size
    optional: bool = False


class LastResponse(dict[str, Tensor]):
    """The output tensors of a request's last response."""


class TensorBackend(ABC):
    """The additional interface of a backend that accepts requests as named tensors."""

    tensor_inputs: ClassVar[tuple[TensorSpecification, ...]]
    tensor_outputs: ClassVar[tuple[TensorSpecification, ...]]

    @abstractmethod
    def infer(self, request_id: int, inputs: Mapping[str, Tensor]) -> AsyncGenerator[Mapping[str, Tensor], None]:
        """Yield every response; closing the generator aborts the request.

        Raise an LmiError if it fails. The last response may be a `LastResponse`.
        """


def _elements(data: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(data):
        start = place + LENGTH_SIZE
        place = start + int.from_bytes(data[place:start], "little")
        if start > len(data) or place > len(data):
            raise ValueError("the data of a BYTES tensor ends within an element")
        yield data[start:place]


def _encode_element(element: object) -> bytes:
    data = element if isinstance(element, bytes) else str(element).encode()
    return len(data).to_bytes(LENGTH_SIZE, "little") + data
