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
    """Return the model, ready to run on its device; raise ConfigurationError if it cannot be loaded."""
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
    """Return the device of that name, or the fastest one for `auto`; raise ConfigurationError if it cannot be used."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise ConfigurationError(f"device {name!r} cannot be used: {reason}") from error
    return device


def context_length(model: PreTrainedModel, max_model_len: int | None) -> int:
    """Return the length of the context: of a prompt and what is generated from it, in tokens."""
    config = model.config.get_text_config()
    limits = [limit for key in LENGTH_KEYS if isinstance(limit := getattr(config, key, None), int) and limit > 0]
    if not limits:
        return max_model_len or UNKNOWN_LENGTH
    if max_model_len is not None and max_model_len > limits[0]:
        raise ConfigurationError(f"max_model_len is {max_model_len}, but the model's context holds {limits[0]} tokens")
    return max_model_len or limits[0]


def eos_token_ids(model: PreTrainedModel) -> frozenset[int]:
    """Return the model's end-of-sequence tokens, of which its configuration may name none."""
    for config in (model.generation_config, model.config.get_text_config()):
        ids: Any = getattr(config, "eos_token_id", None)
        if ids is not None:
            return frozenset([ids] if isinstance(ids, int) else ids)
    return frozenset()
