"""Tensors as bytes, and as numpy's arrays."""

import struct
from typing import Any

import numpy
import pytest

from lmi_core.generation.tensors import ELEMENT_SIZES, NUMPY_TYPES, STRUCT_FORMATS, Tensor

ARRAYS: list[Any] = [
    *(numpy.array([[1, 0, 1]]).astype(name) for name in NUMPY_TYPES.values()),
    numpy.array([[b"a", b""], [b"\xff\x00", b"long" * 100]], dtype=object),
    numpy.array([], dtype=object),
    numpy.zeros((0, 3), "float16"),
    numpy.array(2.5, "float32"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_back_and_forth(array: Any) -> None:
    again = Tensor.from_array(array).array()
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert again.tolist() == array.tolist()


def test_texts_become_utf_8() -> None:
    assert Tensor.from_array(numpy.array(["é"])) == Tensor("BYTES", (1,), b"\x02\x00\x00\x00\xc3\xa9")


def test_data_are_little_endian_and_row_major() -> None:
    expected = Tensor("INT16", (2, 2), b"\x01\x00\x02\x00\x03\x00\x04\x00")
    big_endian = numpy.array([[1, 2], [3, 4]], ">i2")
    assert Tensor.from_array(big_endian) == expected
    assert Tensor.from_array(numpy.array([[1, 3], [2, 4]], "int16").T) == expected
    assert Tensor.of("INT16", (2, 2), [1, 2, 3, 4]) == expected


@pytest.mark.parametrize("dtype", STRUCT_FORMATS)
def test_numbers_need_no_array(dtype: Any) -> None:
    assert Tensor.of(dtype, (3,), [1, 0, 1]) == Tensor.from_array(numpy.array([1, 0, 1]).astype(NUMPY_TYPES[dtype]))


def test_numbers_beyond_a_type() -> None:
    with pytest.raises(struct.error):
        Tensor.of("UINT8", (1,), [256])


def test_bfloat16_is_read_as_float32() -> None:
    tensor = Tensor("BF16", (3,), b"\xc0\x3f\x00\xc0\x80\x7f")
    assert tensor.array().dtype == "float32"
    assert tensor.array().tolist() == [1.5, -2.0, float("inf")]


def test_types_without_a_name() -> None:
    with pytest.raises(ValueError, match=r"^arrays of type complex128 cannot be KServe tensors$"):
        Tensor.from_array(numpy.ones(1, complex))


@pytest.mark.parametrize("dtype", ELEMENT_SIZES)
def test_data_of_the_wrong_length(dtype: Any) -> None:
    size = 6 * ELEMENT_SIZES[dtype]
    Tensor(dtype, (2, 3), bytes(size))
    for wrong in (size - 1, size + 1, 0):
        with pytest.raises(ValueError, match=rf"^{dtype} of shape \[2, 3\] must have {size} bytes\. Given: {wrong}$"):
            Tensor(dtype, (2, 3), bytes(wrong))


@pytest.mark.parametrize("data", [b"\x01\x00\x00", b"\x02\x00\x00\x00a", b"\x01\x00\x00\x00a\x01"])
def test_elements_that_are_cut(data: bytes) -> None:
    with pytest.raises(ValueError, match="ends within an element"):
        Tensor("BYTES", (1,), data)


def test_too_many_elements() -> None:
    with pytest.raises(ValueError, match=r"^BYTES of shape \[1\] must have 1 elements\. Given: 2$"):
        Tensor("BYTES", (1,), bytes(8))


def test_tensor_of_too_many_dimensions() -> None:
    assert Tensor("INT8", (1,) * 32, b"1").array().ndim == 32
    with pytest.raises(ValueError, match=r"at most 32 dimensions\. Given: 65"):
        Tensor("INT8", (1,) * 65, b"1")
