"""A model loaded by transformers from only the names, types and shapes of its weights.

torch documents FakeTensorMode under this private name:
https://docs.pytorch.org/docs/stable/torch.compiler_fake_tensor.html
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import PreTrainedConfig, PreTrainedModel

from lmi_core.inspection.safetensors_header import WeightFacts
from lmi_plugins.torch_engine.checkpoint.quietness import without_progress_bar, without_report
from lmi_plugins.torch_engine.checkpoint.weights_check import LoadingInfo
from lmi_plugins.torch_engine.messages.requests import EngineOptions

SYNCHRONOUS = "HF_DEACTIVATE_ASYNC_LOAD"  # environment variable; a tensor mode applies to a single thread
TORCH_TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.float8_e8m0fnu,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "U16": torch.uint16,
    "I16": torch.int16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "F32": torch.float32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
    "C64": torch.complex64,
}


def load_without_data(
    factory: Any, config: PreTrainedConfig, options: EngineOptions, dtype: Any, weights: Mapping[str, WeightFacts]
) -> tuple[PreTrainedModel, LoadingInfo]:
    """Return the model, whose weights take no memory, and transformers' report about them. transformers itself
    matches weights: checkpoints may rename or merge them. Raises transformers' errors if it cannot load the model,
    and torch's for operations that need data.
    """
    with torch.device("meta"):
        model_type = type(factory.from_config(config, trust_remote_code=options.trust_remote_code))
    with FakeTensorMode(), _synchronous(), without_progress_bar(), without_report():
        tensors = {
            name: torch.empty(weight.shape, dtype=TORCH_TYPES.get(weight.data_type, torch.uint8))
            for name, weight in weights.items()
        }
        loaded: tuple[PreTrainedModel, LoadingInfo] = model_type.from_pretrained(
            None,
            config=config,
            state_dict=tensors,
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    return loaded


@contextmanager
def _synchronous() -> Iterator[None]:
    given = os.environ.get(SYNCHRONOUS)
    os.environ[SYNCHRONOUS] = "1"
    try:
        yield
    finally:
        if given is None:
            del os.environ[SYNCHRONOUS]
        else:
            os.environ[SYNCHRONOUS] = given
