"""Conversion of tensors to bytes and back, for messages."""

import torch

from lmi_core.errors import InvalidParameter
from lmi_plugins.torch_engine.messages.requests import TensorData, TensorType

TYPES: dict[TensorType, torch.dtype] = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def to_bytes(tensor: torch.Tensor) -> bytes:
    """Return the elements of a tensor of any type, contiguous and little-endian."""
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()


def from_data(data: TensorData, what: str) -> torch.Tensor:
    """Return the tensor of a message.

    Raise InvalidParameter, which calls it `what`, if its bytes do not fit its shape.
    """
    dtype, count = TYPES[data.dtype], 1
    for size in data.shape:
        count *= size
    if min(data.shape, default=1) < 1 or len(data.data) != count * dtype.itemsize:
        raise InvalidParameter(
            f"{what} of shape {data.shape} and type {data.dtype} must have {count * dtype.itemsize} bytes, and at least"
            f" one element. Given: {len(data.data)}"
        )
    return torch.frombuffer(bytearray(data.data), dtype=dtype).reshape(data.shape)
