"""LoRA adapters in PEFT's format."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from lmi_core.errors import InvalidAdapter, InvalidParameter
from lmi_core.errors.fault import Fault
from lmi_core.inspection.pickles import ADAPTER, pickled_adapter, refusal
from lmi_plugins.torch_engine.checkpoint.pickled import load_pickled
from lmi_plugins.torch_engine.messages.requests import AdapterTensors
from lmi_plugins.torch_engine.messages.tensors import from_data
from lmi_plugins.torch_engine.sequences.adapter import AdapterWeights, LoraPair

CONFIG_FILE = "adapter_config.json"
PREFIX = "base_model.model."  # added by PEFT's wrapper of the model
TENSOR_NAME = re.compile(r"(?P<module>.+)\.lora_(?P<part>[AB])\.weight")

# Kinds of LoRA that add something other than B times A, or change the model's weights.
UNSUPPORTED_KEYS = (
    "context_length",  # LongLoRA, which also scales the positions
    "use_dora",
    "lora_bias",
    "use_qalora",
    "modules_to_save",
    "layer_replication",
    "trainable_token_indices",
    "target_parameters",
    "alora_invocation_tokens",
)
CHANGED_WEIGHTS = ("pissa", "olora", "corda", "loftq")  # possible beginnings of `init_lora_weights`


def read_directory(directory: Path, *, allow_pickle: bool = False) -> AdapterWeights:
    """Return the weights of an adapter's directory; raise InvalidAdapter if it cannot be used.

    The layout of the model's own weights (`fan_in_fan_out`) is ignored: it matters only for merging.
    """
    config = read_config(directory)
    try:
        tensors = _read_tensors(directory, allow_pickle)
    except (OSError, ValueError, SafetensorError) as error:
        raise InvalidAdapter(f"{directory}: the adapter cannot be read: {error}") from None
    return read_weights(tensors, config)


def read_config(directory: Path) -> dict[str, Any]:
    """Return an adapter's configuration; raise InvalidAdapter if it cannot be used, or if there are no weights."""
    try:
        weights = pickled_adapter(directory) or [directory / ADAPTER]
        for file in (directory / CONFIG_FILE, *weights):
            if not file.is_file():
                raise InvalidAdapter(
                    f"{directory} does not contain a LoRA adapter in PEFT's format: there is no {file.name}"
                )
        config = json.loads((directory / CONFIG_FILE).read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidAdapter(f"{directory}: the adapter cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise InvalidAdapter(f"{directory / CONFIG_FILE} must contain a JSON object")
    _check(config)
    return config


def _read_tensors(directory: Path, allow_pickle: bool) -> dict[str, torch.Tensor]:
    pickled = pickled_adapter(directory)
    if fault := refusal(pickled, allow_pickle):
        raise InvalidAdapter(fault)
    if not pickled:
        return load_file(directory / ADAPTER)
    try:
        content = load_pickled(pickled[0])
    except Fault as unread:
        raise InvalidAdapter(str(unread)) from None
    if not isinstance(content, dict) or not all(isinstance(each, torch.Tensor) for each in content.values()):
        raise InvalidAdapter(f"{pickled[0]}: the file must contain tensors by name")
    return content


def read_tensors(source: AdapterTensors) -> AdapterWeights:
    """Return the weights of an adapter given as tensors; raise InvalidAdapter if it cannot be used."""
    try:
        tensors = {name: from_data(data, f"tensor {name}") for name, data in source.tensors.items()}
    except InvalidParameter as error:
        raise InvalidAdapter(error.message) from None
    return read_weights(tensors, source.config)


def read_weights(tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any] | None) -> AdapterWeights:
    """Return weights by the model's modules, scaled; raise InvalidAdapter if they cannot be used."""
    if config is not None:
        _check(config)
    pairs = _pairs(tensors)
    if config is not None:
        targets = config.get("target_modules")
        for target in targets if isinstance(targets, list) else []:  # otherwise a pattern, such as all-linear
            if not any(module == target or module.endswith(f".{target}") for module in pairs):
                raise InvalidAdapter(f"target_modules has {target}, but the adapter has no weights for such a module")
    return {module: _pair(module, parts, config) for module, parts in pairs.items()}


def _check(config: Mapping[str, Any]) -> None:
    """Raise InvalidAdapter for an unsupported configuration."""
    if config.get("peft_type") != "LORA":
        raise InvalidAdapter(f"peft_type must be LORA. Given: {config.get('peft_type')}")
    for key in UNSUPPORTED_KEYS:
        if config.get(key):
            raise InvalidAdapter(f"LoRA with {key} is not supported. Given: {config[key]}")
    if config.get("bias", "none") != "none":
        raise InvalidAdapter(f"LoRA with biases is not supported. Given: bias={config['bias']}")
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(CHANGED_WEIGHTS):
        raise InvalidAdapter(f"init_lora_weights={start} changed the model's own weights, which are not in an adapter")
    for key in ("r", "lora_alpha"):
        if not isinstance(config.get(key), int | float) or config[key] <= 0:
            raise InvalidAdapter(f"{key} must be a number above 0. Given: {config.get(key)}")


def _pairs(tensors: Mapping[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
    """Return the matrices of each module, A and B."""
    pairs: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        match = TENSOR_NAME.fullmatch(name.removeprefix(PREFIX))
        if "lora_embedding_" in name:
            raise InvalidAdapter(f"LoRA on embeddings is not supported on the torch engine. Given: {name}")
        if match is None:
            raise InvalidAdapter(f"{name} is not a LoRA matrix of a linear layer; only linear layers can be adapted")
        pairs.setdefault(match["module"], {})[match["part"]] = tensor
    if not pairs:
        raise InvalidAdapter("the adapter has no weights")
    return pairs


def _pair(module: str, parts: Mapping[str, torch.Tensor], config: Mapping[str, Any] | None) -> LoraPair:
    for part in "AB":
        if part not in parts:
            raise InvalidAdapter(f"{module} has no matrix lora_{part}")
    down, up = parts["A"], parts["B"]
    if down.dim() != 2 or up.dim() != 2 or down.shape[0] != up.shape[1]:
        raise InvalidAdapter(
            f"{module}: lora_A [rank, in] and lora_B [out, rank] must share their rank."
            f" Given: {list(down.shape)} and {list(up.shape)}"
        )
    scale = 1.0 if config is None else _scale(module, down.shape[0], config)
    return LoraPair(down.t(), up.t().float() * scale)


def _scale(module: str, rank: int, config: Mapping[str, Any]) -> float:
    declared = _by_pattern(module, config.get("rank_pattern"), config["r"])
    if declared != rank:
        raise InvalidAdapter(f"{module}: the configuration says rank {declared}, but the weights have rank {rank}")
    alpha = _by_pattern(module, config.get("alpha_pattern"), config["lora_alpha"])
    return float(alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))


def _by_pattern(module: str, patterns: Mapping[str, Any] | None, default: Any) -> Any:
    """Return the value of the first pattern that the module's name ends with, as PEFT reads them."""
    for pattern, value in (patterns or {}).items():
        if re.fullmatch(rf"(.*\.)?({pattern})", module):
            return value
    return default
