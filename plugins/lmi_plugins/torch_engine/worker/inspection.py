"""Faults of a model for the torch engine that config.json and the headers of the weights show."""

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTextEncoding,
    PreTrainedConfig,
    PreTrainedModel,
)

from lmi_core.errors import ConfigurationError, InvalidAdapter
from lmi_core.inspection.checkpoint import Checkpoint, abridge, configured_weights, read_checkpoint
from lmi_core.inspection.layers import pickled_layers
from lmi_core.inspection.model_folder import has_wrong_json, inspect_tokenizer, wrong_files
from lmi_core.inspection.pickles import pickled_adapter, refusal_faults
from lmi_core.serving_runtime import Note
from lmi_core.texts.reason import reason
from lmi_plugins.torch_engine.adapters.peft_adapter import read_config as read_adapter_config
from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE, blocks_for
from lmi_plugins.torch_engine.cache.memory import least_bytes, too_little_memory
from lmi_plugins.torch_engine.checkpoint.dry_run import load_without_data
from lmi_plugins.torch_engine.checkpoint.pickled import add_pickled
from lmi_plugins.torch_engine.checkpoint.weights_check import (
    wrong_weights,
    wrong_weights_of_base,
    wrong_weights_of_scorer,
)
from lmi_plugins.torch_engine.embeddings.task import check_scorer, choose_task, is_encoder_of_two
from lmi_plugins.torch_engine.messages.embeddings import Task
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.model.attention import UnsupportedAttention
from lmi_plugins.torch_engine.model.loading import (
    DATA_TYPES,
    check_decoder,
    choose_device,
    context_length,
    read_config,
    text_factory,
)
from lmi_plugins.torch_engine.model.paged_support import check_model
from lmi_plugins.torch_engine.model.runner_choice import slower_path

logger = logging.getLogger(__name__)


def inspect_device(name: str) -> Iterator[str]:
    """Yield the fault of an unusable device."""
    try:
        choose_device(name)
    except ConfigurationError as error:
        yield f"option.device: {error.message}"


def inspect_model(options: EngineOptions) -> Iterator[str]:
    """Yield a sentence for each fault of a model on this host."""
    folder = Path(options.model)
    checkpoint = read_checkpoint(folder, configured_weights(folder))
    pickled = [*checkpoint.pickled, *pickled_layers(folder), *pickled_adapter(folder)]
    yield from refusal_faults(pickled, options.allow_pickle)
    if options.allow_pickle:
        checkpoint = add_pickled(checkpoint)
    yield from wrong_files(folder, checkpoint)
    if checkpoint.others:
        yield f"{options.model}: {_other_weights(checkpoint.others)}"
    if has_wrong_json(folder):  # transformers would report the same fault in other words
        return
    task = choose_task(options)
    try:
        config = read_config(options)
        if task == "generate":
            check_decoder(options, config)
        if task == "score":
            check_scorer(options, config)
            yield Note("a reranker, which scores pairs of texts: POST /rerank, /score and /invocations")
    except ConfigurationError as error:
        yield error.message
        return
    try:
        context_length(config, options.max_model_len)
    except ConfigurationError as error:
        yield f"{options.model}: {error.message}"
    yield from inspect_tokenizer(folder, checkpoint, options.trust_remote_code)
    if checkpoint.is_known:
        yield from _inspect_weights(options, config, checkpoint, task)
    for name, directory in options.adapters.items() if task == "generate" else ():
        try:
            read_adapter_config(Path(directory))
        except InvalidAdapter as error:
            yield f"adapter {name}: {error.message}"


def _other_weights(names: list[str]) -> str:
    if all(name.endswith(".gguf") for name in names):
        return (
            f"no weights: {abridge(names)} is in GGUF, llama.cpp's format, and has its own configuration: serve that "
            "file, or set option.model_id to it"
        )
    return f"no weights: neither model.safetensors nor its index; {abridge(names)} has another name or format"


def _inspect_weights(
    options: EngineOptions, config: PreTrainedConfig, checkpoint: Checkpoint, task: Task
) -> Iterator[str]:
    factory, find_fault = text_factory(config), wrong_weights
    if task == "embed":
        factory = AutoModelForTextEncoding if is_encoder_of_two(config) else AutoModel
        find_fault = wrong_weights_of_base
    if task == "score":
        factory, find_fault = AutoModelForSequenceClassification, wrong_weights_of_scorer
    size = least_bytes(checkpoint)
    try:
        model, found = load_without_data(factory, config, options, DATA_TYPES[options.dtype], checkpoint.weights)
    except (ImportError, OSError, ValueError, KeyError) as error:
        yield f"{options.model}: the model cannot be loaded: {reason(error)}"
    except Exception as error:  # for example, operations on quantized weights need their data
        logger.debug("the result of loading cannot be predicted without data", exc_info=error)
    else:
        if fault := find_fault(found):
            yield f"{options.model}: {fault}"
        if task == "generate":
            yield from _path(model, options)
        size = sum(weight.numel() * weight.itemsize for weight in model.parameters())
    yield from _too_little_memory(options, config, size)


def _path(model: PreTrainedModel, options: EngineOptions) -> Iterator[str]:
    try:
        check_model(model, context_length(model.config, options.max_model_len))
    except ConfigurationError:  # the length is a separate fault
        return
    except UnsupportedAttention as reason:
        yield Note(slower_path(model, reason))


def _too_little_memory(options: EngineOptions, config: PreTrainedConfig, weights: int) -> Iterator[str]:
    try:
        device = choose_device(options.device)
    except ConfigurationError:
        return
    cache = options.kv_cache_memory or 0
    with suppress(RuntimeError):  # transformers raises it for sizes that differ between layers
        cache = min(cache, _max_cache_bytes(options, config))
    if fault := too_little_memory(weights, cache, device):
        yield f"{options.model}: {fault}"


def _max_cache_bytes(options: EngineOptions, config: PreTrainedConfig) -> int:
    """Return the bytes of the KV cache for the maximum number of sequences at full length."""
    text = config.get_text_config()
    heads = getattr(text, "num_attention_heads", None) or 1
    size = getattr(text, "head_dim", None) or getattr(text, "hidden_size", 1) // heads
    numbers = 2 * (getattr(text, "num_key_value_heads", None) or heads) * size * getattr(text, "num_hidden_layers", 1)
    asked: object = DATA_TYPES[options.dtype]
    dtype = asked if isinstance(asked, torch.dtype) else text.dtype
    width = dtype.itemsize if isinstance(dtype, torch.dtype) else torch.float32.itemsize
    length = min(options.max_model_len or 1 << 62, context_length(config, None))
    return int(options.max_batch_size * blocks_for(length) * BLOCK_SIZE * numbers * width)
