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
from transformers.modeling_utils import str_to_torch_dtype

from lmi_core.inspection.safetensors_header import WeightFacts
from lmi_plugins.torch_engine.checkpoint.quietness import quiet
from lmi_plugins.torch_engine.checkpoint.weights_check import LoadingInfo
from lmi_plugins.torch_engine.messages.requests import EngineOptions

SYNCHRONOUS = "HF_DEACTIVATE_ASYNC_LOAD"  # environment variable; a tensor mode applies to a single thread


def load_without_data(
    factory: Any, config: PreTrainedConfig, options: EngineOptions, dtype: Any, weights: Mapping[str, WeightFacts]
) -> tuple[PreTrainedModel, LoadingInfo]:
    """Return the model, whose weights take no memory, and transformers' report about them. transformers itself
    matches weights: checkpoints may rename or merge them. Raises transformers' errors if it cannot load the model,
    and torch's for operations that need data.
    """
    with torch.device("meta"):
        model_type = type(factory.from_config(config, trust_remote_code=options.trust_remote_code))
    with FakeTensorMode(), _synchronous(), quiet():
        tensors = {
            name: torch.empty(weight.shape, dtype=str_to_torch_dtype.get(weight.data_type, torch.uint8))
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
