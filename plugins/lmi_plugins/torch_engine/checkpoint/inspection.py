"""What config.json and the headers of the weights tell of whether the torch engine can load a model."""

from collections.abc import Iterator
from math import prod
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from lmi_core.errors import ConfigurationError
from lmi_core.inspection.checkpoint import Checkpoint
from lmi_core.inspection.safetensors_header import WeightFacts, weight_bytes
from lmi_plugins.torch_engine.cache.memory import free_memory
from lmi_plugins.torch_engine.checkpoint.weights_check import wrong_weights
from lmi_plugins.torch_engine.model.loading import DATA_TYPES, choose_device
from lmi_plugins.torch_engine.model.transformers_internals import is_ignored, tied_weights
from lmi_plugins.torch_engine.worker.messages import EngineOptions


def inspect_model(options: EngineOptions, checkpoint: Checkpoint | None) -> Iterator[str]:
    """Yield a sentence for each fault; of the device alone without a checkpoint, which is not on this host then."""
    device: torch.device | None = None
    try:
        device = choose_device(options.device)
    except ConfigurationError as error:
        yield f"option.device: {error.message}"
    if checkpoint is None or not checkpoint.is_known:
        return
    try:
        model = without_weights(options)
    except (OSError, ValueError, ImportError, KeyError) as error:
        reason = str(error).strip().split("\n")[0]
        yield f"{options.model}: the model cannot be loaded: {reason}"
        return
    yield from _wrong_weights(options.model, model, checkpoint)
    if device is not None:
        yield from _too_little_memory(options, checkpoint, device)


def without_weights(options: EngineOptions) -> PreTrainedModel:
    config = AutoConfig.from_pretrained(
        options.model, revision=options.revision, trust_remote_code=options.trust_remote_code
    )
    with torch.device("meta"):
        factory: Any = AutoModelForCausalLM  # not typed
        model: PreTrainedModel = factory.from_config(config, trust_remote_code=options.trust_remote_code)
    return model


def _wrong_weights(folder: str, model: PreTrainedModel, checkpoint: Checkpoint) -> Iterator[str]:
    """Yield the fault of weights that are surely wrong.

    transformers knows some weights by other names than checkpoints do. So where weights are missing and others are not
    in the model, only loading tells, unless not one is in both.
    """
    expected = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    found = checkpoint.weights
    missing = expected.keys() - found.keys() - tied_weights(model)
    unexpected = {name for name in found.keys() - expected.keys() if not is_ignored(model, name)}
    without_prefix = {name.removeprefix(f"{model.base_model_prefix}.") for name in expected}
    certain = found.keys().isdisjoint(expected.keys() | without_prefix)
    info = {
        "mismatched_keys": {
            (name, found[name].shape, expected[name])
            for name in found.keys() & expected.keys()
            if found[name].shape != expected[name]
        },
        "missing_keys": missing if certain or not unexpected else set(),
        "unexpected_keys": unexpected if certain or not missing else set(),
    }
    if fault := wrong_weights(info):
        yield f"{folder}: {fault}"


def _too_little_memory(options: EngineOptions, checkpoint: Checkpoint, device: torch.device) -> Iterator[str]:
    weights = sum(_loaded_bytes(weight, DATA_TYPES[options.dtype]) for weight in checkpoint.weights.values())
    cache = options.kv_cache_memory or 0
    free = free_memory(device)
    if weights + cache > free:
        keys = f" and {cache:,} for keys and values" if cache else ""
        yield (
            f"{options.model}: memory: the weights need {weights:,} bytes{keys}, "
            f"but {device.type} has {free:,} bytes free"
        )


def _loaded_bytes(weight: WeightFacts, data_type: object) -> int:
    return prod(weight.shape) * data_type.itemsize if isinstance(data_type, torch.dtype) else weight_bytes(weight)
