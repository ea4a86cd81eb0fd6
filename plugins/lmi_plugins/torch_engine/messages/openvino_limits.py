"""Reasons for which PyTorch computes a model on the CPU, not OpenVINO. Imports neither."""

import importlib.util
from collections.abc import Mapping
from typing import Any

from lmi_plugins.torch_engine.messages.requests import EngineOptions

DATA_TYPES = {"float32", "bfloat16", "float16"}  # PyTorch's names


def reason_for_torch(options: EngineOptions, on_cpu: bool, dtype: str | None, config: Mapping[str, Any]) -> str | None:
    """Return why PyTorch computes a model with these options; None if OpenVINO may.

    `dtype` is None if it is unknown, `config` the model's configuration.
    """
    if options.cpu_runner == "torch":
        return "option.cpu_runner is torch"
    if not on_cpu:
        return "the model does not run on the CPU"
    if importlib.util.find_spec("openvino") is None:
        return "OpenVINO is not installed (`pip install 'lmi-handlers[cpu]'`)"
    if options.adapters:
        return "adapters loaded at the start run faster with PyTorch"
    if dtype is not None and dtype not in DATA_TYPES:
        return f"OpenVINO computes float32, bfloat16 and float16, but the model has {dtype}"
    if config.get("quantization_config"):
        return "the model's weights are quantized already"
    return "its attention has a soft cap" if config.get("attn_logit_softcapping") else None
