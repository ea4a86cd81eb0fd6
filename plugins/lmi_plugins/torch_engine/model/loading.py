"""Loads a model and reads from its configuration what the engine needs to know."""

import logging
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from lmi_core.errors import ConfigurationError
from lmi_plugins.torch_engine.worker.messages import EngineOptions

logger = logging.getLogger(__name__)

DATA_TYPES = {
    "auto": "auto",
    "fp32": torch.float32,
    "float32": torch.float32,
    "fp16": torch.float16,
    "float16": torch.float16,
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
}
LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length")
UNKNOWN_LENGTH = 2048  # tokens, for models that name no limit


def load_model(options: EngineOptions) -> PreTrainedModel:
    """Ready to run on its device; raises ConfigurationError."""
    device = choose_device(options.device)
    source = {"revision": options.revision, "trust_remote_code": options.trust_remote_code}
    try:
        config = AutoConfig.from_pretrained(options.model, **source)
        if config.is_encoder_decoder:
            raise ConfigurationError(
                f"{options.model}: {config.model_type} is an encoder-decoder model; the torch engine runs decoders only"
            )
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            options.model, config=config, dtype=DATA_TYPES[options.dtype], **source
        )
    except (OSError, ValueError, ImportError, KeyError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ConfigurationError(f"{options.model}: the model cannot be loaded: {reason}") from error
    torch.nn.Module.to(model, device)  # transformers' own override is not typed
    return model  # in evaluation mode, as transformers loads it


def choose_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise ConfigurationError(f"device {name!r} cannot be used: {reason}") from error
    return device


def context_length(model: PreTrainedModel, asked_for: int | None) -> int:
    """Of a prompt and what is generated from it, in tokens."""
    config = model.config.get_text_config()
    limits = [limit for key in LENGTH_KEYS if isinstance(limit := getattr(config, key, None), int) and limit > 0]
    if not limits:
        return asked_for or UNKNOWN_LENGTH
    if asked_for is not None and asked_for > limits[0]:
        raise ConfigurationError(f"max_model_len is {asked_for}, but the model's context holds {limits[0]} tokens")
    return asked_for or limits[0]


def end_of_sequence_ids(model: PreTrainedModel) -> frozenset[int]:
    for config in (model.generation_config, model.config.get_text_config()):
        ids: Any = getattr(config, "eos_token_id", None)
        if ids is not None:
            return frozenset([ids] if isinstance(ids, int) else ids)
    return frozenset()
