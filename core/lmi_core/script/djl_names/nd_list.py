"""Conversion between DJL's binary list of arrays, `tensor/ndlist`, and numpy."""

import io
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

MAGIC = "NDAR"
VERSION = 3
ZIP_MAGIC = b"PK"  # an npz file, which clients also send as an NDList
NUMPY_TYPES = {"boolean": "bool"}  # DJL's names, if they differ from numpy's


def from_npz(data: bytes) -> list["numpy.ndarray[Any, Any]"]:
    import numpy

    arrays = numpy.load(io.BytesIO(data))
    return [arrays[name] for name in arrays.files]


def to_npz(arrays: list["numpy.ndarray[Any, Any]"]) -> bytes:
    import numpy

    file = io.BytesIO()
    numpy.savez(file, *arrays)
    return file.getvalue()


def from_nd_list(data: bytes) -> list["numpy.ndarray[Any, Any]"]:
    """Return the arrays of an NDList or an npz file. Raise ValueError for other data."""
    if data.startswith(ZIP_MAGIC):
        return from_npz(data)
    reader = _Reader(data)
    return [reader.array() for _ in range(reader.number("i"))]


def to_nd_list(arrays: "list[numpy.ndarray[Any, Any]] | numpy.ndarray[Any, Any]") -> bytes:
    listed = arrays if isinstance(arrays, list) else [arrays]
    return struct.pack(">i", len(listed)) + b"".join([_array(array) for array in listed])


def _array(array: "numpy.ndarray[Any, Any]") -> bytes:
    little_endian = array.astype(array.dtype.newbyteorder("<"))
    name = {"bool": "BOOLEAN"}.get(array.dtype.name, array.dtype.name.upper())
    data = little_endian.tobytes("C")
    unknown_layout = struct.pack(">i", array.ndim) + struct.pack(f">{array.ndim}H", *[ord("?")] * array.ndim)
    shape = struct.pack(">i", array.ndim) + struct.pack(f">{array.ndim}q", *array.shape) + unknown_layout
    head = _text(MAGIC) + struct.pack(">iB", VERSION, 0) + _text("default") + _text(name)
    return head + shape + b"<" + struct.pack(">i", len(data)) + data


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)
        self._place = 0

    def array(self) -> "numpy.ndarray[Any, Any]":
        import numpy

        if self._text() != MAGIC or self.number("i") != VERSION:
            raise ValueError(f"the body is not an NDList of version {VERSION}")
        if self.number("B"):
            self._text()  # the array's name
        self._text()  # the sparse format
        kind = self._text().lower()
        shape = [self.number("q") for _ in range(self.number("i"))]
        for _ in range(self.number("i")):
            self.number("H")  # the meaning of the dimension
        little_endian = chr(self.number("B")) == "<"
        data = self._take(self.number("i"))
        element = numpy.dtype(NUMPY_TYPES.get(kind, kind)).newbyteorder("<" if little_endian else ">")
        return numpy.frombuffer(data, element).reshape(shape)

    def number(self, kind: str) -> int:
        size = struct.calcsize(f">{kind}")
        value: int = struct.unpack(f">{kind}", self._take(size))[0]
        return value

    def _text(self) -> str:
        return self._take(self.number("h")).decode()

    def _take(self, length: int) -> bytes:
        taken = self._data[self._place : self._place + length]
        if length < 0 or len(taken) < length:
            raise ValueError("the body is not an NDList: it ends too early")
        self._place += length
        return taken
