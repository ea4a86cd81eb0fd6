"""What config.json and the headers of the weights tell of whether the torch engine can load a model."""

from collections.abc import Iterator
from math import prod
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedModel

from lmi_core.errors import ConfigurationError
from lmi_core.inspection.checkpoint import Checkpoint
from lmi_core.inspection.safetensors_header import WeightFacts, weight_bytes
from lmi_plugins.torch_engine.cache.memory import free_memory
from lmi_plugins.torch_engine.checkpoint.weights_check import LoadingInfo, wrong_weights, wrong_weights_of_base
from lmi_plugins.torch_engine.embeddings.task import choose_task
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
    embeds = choose_task(options) == "embed"
    try:
        model = without_weights(options, AutoModel if embeds else AutoModelForCausalLM)
    except (OSError, ValueError, ImportError, KeyError) as error:
        reason = str(error).strip().split("\n")[0]
        yield f"{options.model}: the model cannot be loaded: {reason}"
        return
    if fault := (wrong_weights_of_base if embeds else wrong_weights)(_surely_wrong(model, checkpoint)):
        yield f"{options.model}: {fault}"
    if device is not None:
        yield from _too_little_memory(options, checkpoint, device)


def without_weights(options: EngineOptions, factory: Any) -> PreTrainedModel:
    """Return the model that one of transformers' factories makes of the configuration, with no memory for weights."""
    config = AutoConfig.from_pretrained(
        options.model, revision=options.revision, trust_remote_code=options.trust_remote_code
    )
    with torch.device("meta"):
        model: PreTrainedModel = factory.from_config(config, trust_remote_code=options.trust_remote_code)
    return model


def _surely_wrong(model: PreTrainedModel, checkpoint: Checkpoint) -> LoadingInfo:
    """Return what loading will surely find wrong.

    transformers knows some weights by other names than checkpoints do. So where weights are missing and others are not
    in the model, only loading tells, unless not one is in both.
    """
    expected = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    found = checkpoint.weights
    missing = expected.keys() - found.keys() - tied_weights(model)
    unexpected = {name for name in found.keys() - expected.keys() if not is_ignored(model, name)}
    prefix = f"{model.base_model_prefix}."  # either may have it where the other does not
    certain = {name.removeprefix(prefix) for name in found}.isdisjoint(name.removeprefix(prefix) for name in expected)
    return {
        "mismatched_keys": {
            (name, found[name].shape, expected[name])
            for name in found.keys() & expected.keys()
            if found[name].shape != expected[name]
        },
        "missing_keys": missing if certain or not unexpected else set(),
        "unexpected_keys": unexpected if certain or not missing else set(),
    }


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
