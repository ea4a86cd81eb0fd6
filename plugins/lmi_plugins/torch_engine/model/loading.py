"""Loading of a model and of its configuration."""

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
)

from lmi_core.errors import ConfigurationError
from lmi_core.inspection.checkpoint import configured_weights, read_checkpoint
from lmi_core.inspection.model_folder import CONFIG, absurd_sizes, tokens_beyond, wrong_files
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.texts.reason import reason
from lmi_plugins.torch_engine.cache.memory import least_bytes, too_little_memory
from lmi_plugins.torch_engine.checkpoint.pickled import wrong_pickles
from lmi_plugins.torch_engine.checkpoint.quietness import quiet
from lmi_plugins.torch_engine.checkpoint.weight_files import check_weight_files
from lmi_plugins.torch_engine.checkpoint.weights_check import LoadingInfo, wrong_weights
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.model.rope_by_length import GROWING
from lmi_plugins.torch_engine.model.soft_prompt import embedding_weight

logger = logging.getLogger(__name__)

DATA_TYPES = {
    "auto": "auto",
    "fp32": torch.float32,
    "float32": torch.float32,
    "float": torch.float32,
    "fp16": torch.float16,
    "float16": torch.float16,
    "half": torch.float16,
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
}
CAUSAL_CLASSES: Any = MODEL_FOR_CAUSAL_LM_MAPPING  # not typed
MULTIMODAL_CLASSES: Any = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
# Endings of class names for models whose output is not a next token.
CLASSIFIER = "ForSequenceClassification"
SCORING = (
    CLASSIFIER,
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
    "RewardModel",
)
NOT_CAUSAL = {"xlnet", "paligemma"}
# Multimodal models that generate the same text as transformers; tests check each of them.
WHOLE = {
    "glm4v",
    "idefics3",
    "internvl",
    "llama4",
    "llava",
    "llava_next",
    "mistral3",
    "mllama",
    "qwen2_5_vl",
    "qwen2_vl",
    "qwen3_vl",
    "qwen3_vl_moe",
    "smolvlm",
}
UNLOADABLE = (OSError, ValueError, ImportError, KeyError, RuntimeError, SafetensorError, UnpicklingError)
LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length")
UNKNOWN_LENGTH = 2048  # tokens, for models that do not declare a limit


def load_model(options: EngineOptions) -> PreTrainedModel:
    """Return the model, ready to run on its device; raise ConfigurationError if it cannot be loaded."""
    config = read_config(options)
    check_decoder(options, config)
    return load_weights(text_factory(config), config, options, wrong_weights)


def text_factory(config: PreTrainedConfig) -> Any:
    """Return the factory of the class that generates texts with this configuration."""
    causal, multimodal = (each.get(type(config), None) for each in (CAUSAL_CLASSES, MULTIMODAL_CLASSES))
    if multimodal is None or "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {}):
        return AutoModelForCausalLM
    # Classes of the text model alone; some of them cannot read the weights of the whole model.
    apart = causal is not None and causal.base_model_prefix == "language_model"
    is_whole = multimodal.__name__ in (config.architectures or [])
    return AutoModelForImageTextToText if causal is None or (apart and is_whole) else AutoModelForCausalLM


def check_decoder(options: EngineOptions, config: PreTrainedConfig) -> None:
    """Raise ConfigurationError for a model that is not a causal language model."""
    if (fault := _wrong_kind(config)) is not None:
        raise ConfigurationError(f"{options.model}: {fault}")


def _wrong_kind(config: PreTrainedConfig) -> str | None:
    """Return why a model is not a causal language model."""
    model_type = config.model_type
    if config.is_encoder_decoder:
        return f"{model_type} is an encoder-decoder model; the torch engine runs decoders only"
    for name in config.architectures or ():
        if name.endswith(SCORING):
            return (
                f"{name} scores or classifies texts, which the torch engine does not do; it generates, embeds, and "
                "scores pairs of texts by a classifier with one label"
            )
    reads_left_to_right = getattr(config, "is_decoder", False) or getattr(config, "causal", False)
    encodes = type(config) in MODEL_FOR_MASKED_LM_MAPPING or model_type == "bert-generation"
    if model_type in NOT_CAUSAL or (encodes and not reads_left_to_right):
        return f"{model_type} reads texts in both directions; the torch engine generates only with models that do not"
    if text_factory(config) is AutoModelForImageTextToText and model_type not in WHOLE:
        return f"{model_type} is for images and texts; the torch engine does not serve its texts, but vLLM may"
    return None


def read_config(options: EngineOptions) -> PreTrainedConfig:
    """Return the model's configuration; raise ConfigurationError if it cannot be read."""
    if absurd := [*absurd_sizes(Path(options.model) / CONFIG)]:
        raise ConfigurationError("; ".join(absurd))
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            options.model, revision=options.revision, trust_remote_code=options.trust_remote_code
        )
    except Exception as error:  # many classes, which also depend on the version of huggingface_hub
        raise ConfigurationError(_loading_fault(options.model, error)) from error
    return config


def load_weights(
    factory: Any,
    config: PreTrainedConfig,
    options: EngineOptions,
    find_fault: Callable[[LoadingInfo], str | None],
    **arguments: Any,
) -> PreTrainedModel:
    """Return the model that a transformers factory creates from the configuration and the checkpoint.

    Raise ConfigurationError if it cannot be loaded, or if `find_fault` finds a fault in its weights.
    """
    device = choose_device(options.device)
    # PyTorch may prefer cuDNN's attention, which makes a plan, in 0.05 to 0.09 s, whenever a prompt has a new length.
    torch.backends.cuda.enable_cudnn_sdp(False)
    if fault := too_little_memory(least_bytes(check_weight_files(options)), 0, device):
        raise ConfigurationError(f"{options.model}: {fault}")
    try:
        with quiet(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected pickle protocol")
            loaded = factory.from_pretrained(
                options.model,
                config=config,
                dtype=DATA_TYPES[options.dtype],
                revision=options.revision,
                trust_remote_code=options.trust_remote_code,
                use_safetensors=None if options.allow_pickle else True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # mismatches are reported with other faults
                **arguments,
            )
    except UNLOADABLE as error:
        logger.debug("transformers could not load %s", options.model, exc_info=True)
        raise ConfigurationError(_loading_fault(options.model, error)) from error
    model: PreTrainedModel = loaded[0]
    if fault := find_fault(loaded[1]):
        raise ConfigurationError(f"{options.model}: {fault}")
    torch.nn.Module.to(model, device)  # transformers' own override is not typed
    return model  # in evaluation mode, as transformers loads it


def _loading_fault(source: str, error: Exception) -> str:
    """Return the faults of the model's files, or transformers' message."""
    folder = Path(source)
    if folder.is_dir():
        checkpoint = read_checkpoint(folder, configured_weights(folder))
        if faults := [*wrong_files(folder, checkpoint), *wrong_pickles(checkpoint.pickled)]:
            return "; ".join(faults)
    return f"{source}: the model cannot be loaded: {reason(error)}"


def check_tokenizer(model: PreTrainedModel, tokenizer: HuggingFaceTokenizer) -> None:
    """Raise ConfigurationError if tokens have no embedding; if only added tokens are affected, log it."""
    beyond = tokens_beyond(tokenizer, embedding_weight(model).shape[0])
    if beyond is None:
        return
    if not beyond.only_added:
        raise ConfigurationError(f"{model.name_or_path}: the tokenizer is not this model's: {beyond.described}")
    logger.warning("The tokenizer has %s. Prompts with them fail.", beyond.described)


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


def context_length(config: PreTrainedConfig, max_model_len: int | None) -> int:
    """Return the context length, in tokens, of a prompt and its continuation, by a configuration and the option."""
    config = config.get_text_config()
    limits = [limit for key in LENGTH_KEYS if isinstance(limit := getattr(config, key, None), int) and limit > 0]
    rope: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == GROWING:  # extends the trained length by this factor
        limits = [int(limit * rope["factor"]) for limit in limits]
    if not limits:
        return max_model_len or UNKNOWN_LENGTH
    if max_model_len is not None and max_model_len > limits[0]:
        raise ConfigurationError(f"max_model_len is {max_model_len}, but the model's context holds {limits[0]} tokens")
    return max_model_len or limits[0]


def eos_token_ids(model: PreTrainedModel) -> frozenset[int]:
    """Return the model's end-of-sequence tokens, of which its configuration may name none."""
    for config in (model.generation_config, model.config.get_text_config()):
        ids: Any = getattr(config, "eos_token_id", None)
        if ids is None:
            continue
        found = [ids] if isinstance(ids, int) else ids
        if not isinstance(found, list) or not all(isinstance(each, int) for each in found):
            raise ConfigurationError(
                f"{model.name_or_path}: `eos_token_id` must be a token id or several. Given: {ids}"
            )
        return frozenset(found)
    return frozenset()
