"""LMI's options of the vLLM backend, and their translation to vLLM's engine arguments."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from lmi_core.backend import BackendSetup
from lmi_core.configuration.location import RemoteModel, is_s3
from lmi_core.configuration.model_source import is_on_hub, model_source
from lmi_core.configuration.properties import Names
from lmi_core.errors import ConfigurationError
from lmi_plugins.backends.engine_properties import (
    NGRAM,
    EmbeddingProperties,
    EngineProperties,
    adapter_folders,
    draft_model,
    engine_downloads,
    int8_warnings,
)
from lmi_plugins.vllm_engine.arguments.former import as_text
from lmi_plugins.vllm_engine.arguments.load_formats import json_object
from lmi_plugins.vllm_engine.arguments.parallel_degrees import MAX, ParallelDegrees

DataType = Literal["auto", "fp32", "fp16", "bf16", "float32", "float16", "bfloat16", "half", "float", "int8"]
DATA_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "auto"}

RUNNERS = {"generate": "generate", "embed": "pooling", "score": "pooling"}
POOLING_TYPES = {"cls": "CLS", "mean": "MEAN", "lasttoken": "LAST"}
VLLM_METHODS = {"bitsandbytes4": "bitsandbytes", "bitsandbytes8": "bitsandbytes"}
# Methods of other containers and engines, and a method that vLLM now detects from the model.
METHODS_OF_OTHERS = ("marlin", "smoothquant", "static_int8", "int8", "int4")

# Arguments derived from the declared options or the model directory.
NOT_PASSED_THROUGH = frozenset({"model"})


# With these, vLLM downloads from the hub itself: to another folder, with its own token, or without the weights.
OWN_DOWNLOADS = frozenset({"download_dir", "hf_token"})
OWN_LOAD_FORMATS = frozenset({"dummy", "runai_streamer", "runai_streamer_sharded", "tensorizer"})


class VllmProperties(EngineProperties):
    """LMI's options for vLLM; every engine argument of the installed vLLM is an option too."""

    max_rolling_batch_size: Annotated[
        PositiveInt, Names(aliases=("max_num_seqs",), environment=("MAX_BATCH_SIZE",))
    ] = Field(default=256, description="Maximum number of requests that generate at the same time.")
    max_rolling_batch_prefill_tokens: Annotated[
        PositiveInt | None, Names(aliases=("max_num_batched_tokens",), environment=("MAX_BATCH_PREFILL_TOKENS",))
    ] = Field(None, description="Maximum number of tokens in one step, all requests together. Default: vLLM's choice.")
    dtype: Annotated[DataType, Names(aliases=("data_type",))] = Field(
        "auto", description="Data type of the weights and the computation; auto means the model's own."
    )
    quantize: Annotated[str | None, Names(aliases=("quantization",), environment=("HF_MODEL_QUANTIZE",))] = Field(
        None,
        description="Quantization of the weights, by vLLM's names (awq, gptq, fp8, ...). Default: the model's own.",
    )
    device_map: str | None = Field(
        None,
        description="transformers' option, which has no effect with vLLM; only auto is accepted without a warning.",
    )
    lmcache_config_file: str | None = Field(
        None,
        description="LMCache's configuration file in the model directory; option.kv_transfer_config enables LMCache.",
    )
    max_image_pixels: Annotated[PositiveInt, Names(environment=("VLLM_MAX_IMAGE_PIXELS",))] = Field(
        default=8192 * 8192,
        description="Maximum number of pixels of all images in one chat. Decoding them takes at most 32 bytes of "
        "memory per pixel in a process of its own, and about 10 in the server.",
    )
    trust_request_mm_kwargs: bool = Field(
        default=False,
        description="Allow requests to send `mm_processor_kwargs` and `media_io_kwargs`. Enable this only if you "
        "trust every client with the CPU time and memory that reading its images can use.",
    )
    enable_lora: bool | None = Field(
        None, description="Support LoRA adapters. Default: true if the model directory contains some."
    )
    draft_model_tp_size: Annotated[PositiveInt | None, Names(aliases=("speculative_draft_tensor_parallel_size",))] = (
        Field(None, description="Number of devices for the draft model. Default: vLLM's choice.")
    )


def vllm_warnings(properties: VllmProperties) -> list[str]:
    """Return a line for each of LMI's options that vLLM treats differently."""
    warnings = int8_warnings(properties.dtype)
    if properties.quantize in METHODS_OF_OTHERS:
        warnings.append(
            f"option.quantize={properties.quantize} has no effect: vLLM has no such method, and uses the model's own"
        )
    if properties.device_map not in (None, "auto"):
        warnings.append(
            f"option.device_map={properties.device_map} has no effect: vLLM distributes a model over devices itself"
        )
    return warnings


def vllm_arguments(setup: BackendSetup[Any], passed: Mapping[str, str], degrees: ParallelDegrees) -> dict[str, str]:
    """Return the engine arguments as text, by vLLM's names, including the `passed` ones.

    Raise ConfigurationError if options contradict each other.
    """
    properties: VllmProperties = setup.properties
    arguments: dict[str, object] = {
        "model": model_source(setup.directory, properties),
        "revision": properties.revision,
        "trust_remote_code": properties.trust_remote_code,
        "dtype": DATA_TYPES.get(properties.dtype, properties.dtype),
        "max_num_seqs": properties.max_rolling_batch_size,
        "max_num_batched_tokens": properties.max_rolling_batch_prefill_tokens,
        "tensor_parallel_size": MAX if degrees.tensor is None else degrees.tensor,
        "pipeline_parallel_size": degrees.pipeline if degrees.pipeline > 1 else None,
        "gpu_memory_utilization": properties.gpu_memory_utilization,
        "max_model_len": properties.max_model_len,
        "quantization": quantization(properties.quantize),
        "disable_log_stats": True,  # statistics would double the cost per token
        "max_logprobs": -1,  # LMI limits requests itself, and beam search needs more
        "runner": None if properties.asked_task is None else RUNNERS[properties.asked_task],
        **_lora_arguments(setup.directory, properties),
    }
    given = {name: as_text(value) for name, value in arguments.items() if value is not None}
    return given | dict(passed) | _speculative_arguments(setup, passed) | embedding_arguments(properties, passed)


def vllm_downloads(setup: BackendSetup[Any]) -> dict[str, RemoteModel]:
    """Return the remote models to copy to this host before vLLM starts, by option."""
    passed = setup.engine_arguments
    own = bool(OWN_DOWNLOADS & passed.keys()) or passed.get("load_format") in OWN_LOAD_FORMATS
    tokenizer = passed.get("tokenizer", "")
    tokenizers = {}
    if is_s3(tokenizer):
        tokenizers["tokenizer"] = RemoteModel(tokenizer)
    elif tokenizer and not own and is_on_hub(tokenizer):
        tokenizers["tokenizer"] = RemoteModel(tokenizer, passed.get("tokenizer_revision"), only_tokenizer=True)
    models = engine_downloads(setup, from_hub=not own)
    return {option: model for option, model in models.items() if not model.quantization} | tokenizers


def _lora_arguments(directory: Path, properties: VllmProperties) -> dict[str, object]:
    enabled = properties.enable_lora
    if not (bool(adapter_folders(directory, properties)) if enabled is None else enabled):
        return {}
    return {
        "enable_lora": True,
        "max_loras": properties.max_loras,
        "max_lora_rank": properties.max_lora_rank,
        "max_cpu_loras": properties.max_cpu_loras,
    }


def quantization(method: str | None) -> str | None:
    """Return vLLM's name of a quantization method, or None if vLLM detects it from the model."""
    return None if method in METHODS_OF_OTHERS else VLLM_METHODS.get(str(method), method)


def _speculative_arguments(setup: BackendSetup[Any], passed: Mapping[str, str]) -> dict[str, str]:
    properties: VllmProperties = setup.properties
    model = draft_model(setup.directory, properties)
    recording = {"per_request_spec_decode_metrics": "summary"} if properties.record_acceptance_rate else {}
    if model is None:
        return recording if "speculative_config" in passed else {}
    if "speculative_config" in setup.engine_arguments:
        raise ConfigurationError(
            "option.speculative_draft_model and option.speculative_config cannot be used together: give only one of "
            "them"
        )
    config: dict[str, object] = {"method": "ngram"} if model == NGRAM else {"model": model}
    config["num_speculative_tokens"] = properties.speculative_length
    if properties.draft_model_tp_size is not None:
        config["draft_tensor_parallel_size"] = properties.draft_model_tp_size
    config |= json_object(passed, "speculative_config")  # with vLLM's former names
    return {"speculative_config": json.dumps(config), **recording}


def embedding_arguments(properties: EmbeddingProperties, passed: Mapping[str, str]) -> dict[str, str]:
    """Return the engine arguments for a model's vectors, merged with passed-through ones.

    Raise ConfigurationError for a pooling that vLLM does not support.
    """
    pooler: dict[str, object] = {}
    if properties.engine_pooling is not None:
        if properties.engine_pooling not in POOLING_TYPES:
            raise ConfigurationError(
                f"option.pooling={properties.pooling}: vLLM has {', '.join(POOLING_TYPES)}; the torch backend has more"
            )
        pooler["pooling_type"] = POOLING_TYPES[properties.engine_pooling]
    if properties.normalize is not None:
        pooler["use_activation"] = properties.normalize
    overrides: dict[str, object] = {"is_matryoshka": True} if properties.any_size else {}
    if properties.smaller_sizes is not None:
        overrides["matryoshka_dimensions"] = properties.smaller_sizes
    own = {"pooler_config": pooler, "hf_overrides": overrides}
    return {name: json.dumps(value | json_object(passed, name)) for name, value in own.items() if value}
