"""Tensors as the data of messages."""

import torch

from lmi_plugins.torch_engine.messages.requests import TensorData
from lmi_plugins.torch_engine.messages.tensors import TYPES, to_bytes


def to_data(tensor: torch.Tensor) -> TensorData:
    """The data of a message for a tensor of a type that messages can hold."""
    name = next(name for name, dtype in TYPES.items() if dtype == tensor.dtype)
    return TensorData(name, list(tensor.shape), to_bytes(tensor))
