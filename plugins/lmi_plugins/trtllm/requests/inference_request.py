"""TensorRT-LLM's request: an id, and tensors by name."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from lmi_core.errors import InvalidParameter
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_core.generation.tensors import NUMPY_TYPES, Tensor, TensorType
from lmi_plugins.trtllm.requests.tensor_table import BY_NAME, MANDATORY, fits, shape_in_words, shapes_of, types_of
from lmi_plugins.trtllm.requests.value_checks import WORD_LISTS, check_values, read_words

if TYPE_CHECKING:
    import torch

# Numpy's kinds of lists that can become such a tensor
KINDS = {"BOOL": "b", "FP16": "biuf", "FP32": "biuf", "FP64": "biuf"}
INTEGERS = "biu"

LAST_ID = 2**64 - 1


class InferenceRequest:
    """A request whose tensors are valid for some model; they may be numpy or torch arrays, `Tensor`s, or lists."""

    def __init__(
        self,
        request_id: int,
        tensors: Mapping[str, Any],
        bad_texts: Sequence[str] = (),
    ) -> None:
        """Check the tensors; raise InvalidParameter for values that no model could accept.

        `bad_texts` are never generated, however they are split into tokens; TensorRT-LLM has only `bad_words_list`.
        """
        if isinstance(request_id, bool) or not isinstance(request_id, int) or not 0 <= request_id <= LAST_ID:
            raise InvalidParameter(f"`request_id` must be an integer from 0 to {LAST_ID}. Given: {request_id!r}")
        self.request_id = request_id
        self.tensors = {name: _check(name, value) for name, value in tensors.items()}
        for name in MANDATORY:
            if name not in self.tensors:
                raise InvalidParameter(f"`{name}` is required: {_requirement(name)}")
        self.bad_texts = list(bad_texts)
        check_values(self.tensors)
        self.words = {name: read_words(name, self.tensors[name]) for name in WORD_LISTS if name in self.tensors}

    @property
    def streaming(self) -> bool:
        return bool(self.number("streaming", False))

    @property
    def beam_width(self) -> int:
        return int(self.number("beam_width", 1))

    @property
    def input_length(self) -> int:
        return self.tensors["input_ids"].shape[-1]

    @property
    def output_length(self) -> int:
        """The maximum number of tokens to generate."""
        return int(self.number("request_output_len", 0))

    def number(self, name: str, default: float) -> float:
        """Return the only number of a tensor, or the default if it is not given."""
        if name not in self.tensors:
            return default
        value: float = self.tensors[name].array().item()
        return value

    def ids(self, name: str) -> "numpy.ndarray[Any, Any]":
        """Return all ids of a tensor; none if it is not given."""
        return self.tensors[name].array().ravel() if name in self.tensors else numpy.array([], "int32")


def _check(name: str, value: object) -> Tensor:
    if name not in BY_NAME:
        raise InvalidParameter(
            f"`{name}` is not an input tensor.{did_you_mean(name, BY_NAME)} Known: {', '.join(BY_NAME)}"
        )
    try:
        tensor = as_tensor(value, BY_NAME[name].dtype)
    except ValueError as error:
        raise InvalidParameter(f"`{name}` must be {_requirement(name)}. Given: {error}") from None
    if tensor.dtype not in types_of(name) or not any(fits(tensor.shape, each) for each in shapes_of(name)):
        raise InvalidParameter(
            f"`{name}` must be {_requirement(name)}. Given: {tensor.dtype} of shape {shape_in_words(tensor.shape)}"
        )
    return tensor


def _requirement(name: str) -> str:
    shapes = " or ".join(shape_in_words(shape) for shape in shapes_of(name))
    return f"{' or '.join(types_of(name))} of shape {shapes}"


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
    array = numpy.asarray(value)  # raises ValueError if rows have different lengths
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
