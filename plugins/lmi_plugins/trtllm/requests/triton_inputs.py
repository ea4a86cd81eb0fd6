"""Conversion of the tensors of Triton's TensorRT-LLM model to those in TensorRT-LLM's own table."""

from collections.abc import Mapping

from lmi_core.errors import InvalidParameter
from lmi_core.generation.tensors import Tensor
from lmi_plugins.trtllm.requests.tensor_table import BY_NAME, fits, shapes_of

INPUT_LENGTHS = "input_lengths"  # how many of `input_ids` belong to the prompt; the rest is padding


def from_triton(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop Triton's batch axis, which is 1, and values beyond `input_lengths`.

    Raise InvalidParameter if these do not fit.
    """
    tensors = {name: _without_batch(name, tensor) for name, tensor in inputs.items()}
    lengths = tensors.pop(INPUT_LENGTHS, None)
    if lengths is not None and "input_ids" in tensors:
        tensors["input_ids"] = _truncate(tensors["input_ids"], lengths)
    return tensors


def _without_batch(name: str, tensor: Tensor) -> Tensor:
    known = name in BY_NAME and not any(fits(tensor.shape, shape) for shape in shapes_of(name))
    if known and tensor.shape[:1] == (1,) and any(fits(tensor.shape[1:], shape) for shape in shapes_of(name)):
        return Tensor(tensor.dtype, tensor.shape[1:], tensor.data)
    return tensor


def _truncate(input_ids: Tensor, lengths: Tensor) -> Tensor:
    if lengths.dtype != "INT32" or lengths.shape not in ((1,), (1, 1)):
        raise InvalidParameter(
            f"`{INPUT_LENGTHS}` must be INT32 of shape [1, 1]. Given: {lengths.dtype} of shape {list(lengths.shape)}"
        )
    ids, length = input_ids.array(), lengths.array().item()
    if not 1 <= length <= ids.shape[-1]:
        raise InvalidParameter(
            f"`{INPUT_LENGTHS}` must be from 1 to {ids.shape[-1]}, the size of `input_ids`. Given: {length}"
        )
    return Tensor.from_array(ids[..., :length])
