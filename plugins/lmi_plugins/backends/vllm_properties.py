"""LMI's options of the vLLM backend, and the engine arguments of vLLM's that they stand for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from lmi_core.backend import BackendSetup
from lmi_core.errors import ConfigurationError
from lmi_core.model_source import model_source
from lmi_core.properties import Names
from lmi_core.remote.location import RemoteModel, is_s3
from lmi_plugins.backends.engine_properties import EngineProperties, adapter_folders, draft_model, engine_downloads

DataType = Literal["auto", "fp32", "fp16", "bf16", "float32", "float16", "bfloat16", "half", "float"]
DATA_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
MAX = "max"  # as `option.tensor_parallel_degree`: every device

# What these arguments hold follows from the declared options, or from the model directory.
NOT_PASSED_THROUGH = frozenset({"model"})


# With these vLLM is to download from the hub itself: elsewhere, with a token of its own, or no weights at all.
OWN_DOWNLOADS = frozenset({"download_dir", "hf_token"})
OWN_LOAD_FORMATS = frozenset({"dummy", "runai_streamer", "runai_streamer_sharded", "tensorizer"})


class VllmProperties(EngineProperties):
    """Whatever is not declared here passes through: every engine argument of the installed vLLM is an option."""

    max_rolling_batch_size: Annotated[
        PositiveInt, Names(aliases=("max_num_seqs",), environment=("MAX_BATCH_SIZE",))
    ] = Field(default=32, description="Most requests that generate at the same time.")
    max_rolling_batch_prefill_tokens: Annotated[PositiveInt | None, Names(aliases=("max_num_batched_tokens",))] = Field(
        None, description="Most tokens computed in one step, prompts' and others; vLLM's choice when not given."
    )
    dtype: DataType = Field("auto", description="Type of the weights and of the computation; auto is the model's own.")
    tensor_parallel_degree: Annotated[
        PositiveInt | Literal["max"],
        Names(aliases=("tensor_parallel_size",), environment=("TENSOR_PARALLEL_DEGREE",)),
    ] = Field(1, description="Devices that one model is spread over; max takes all.")
    quantize: Annotated[str | None, Names(aliases=("quantization",))] = Field(
        None, description="How the weights are quantized, in vLLM's words (awq, gptq, fp8, ...); as the model says."
    )
    enable_lora: bool | None = Field(
        None, description="Take LoRA adapters; when not given, if the model directory holds some."
    )
    draft_model_tp_size: PositiveInt | None = Field(
        None, description="Devices that the draft model is spread over; vLLM's choice when not given."
    )


def vllm_arguments(setup: BackendSetup[Any], passed: Mapping[str, str]) -> dict[str, str]:
    """Engine arguments as text, by vLLM's names; `passed` are those that pass through. Raises ConfigurationError."""
    properties: VllmProperties = setup.properties
    arguments: dict[str, object] = {
        "model": model_source(setup.directory, properties),
        "revision": properties.revision,
        "trust_remote_code": properties.trust_remote_code,
        "dtype": DATA_TYPES.get(properties.dtype, properties.dtype),
        "max_num_seqs": properties.max_rolling_batch_size,
        "max_num_batched_tokens": properties.max_rolling_batch_prefill_tokens,
        "tensor_parallel_size": properties.tensor_parallel_degree,
        "max_model_len": properties.max_model_len,
        "quantization": properties.quantize,
        "disable_log_stats": True,  # they cost as much again for each token as the rest of what the server does
        "max_logprobs": -1,  # the bound on what requests ask for is LMI's; beam search needs more
        **_lora_arguments(setup.directory, properties),
        **_speculative_arguments(setup.directory, properties, passed),
    }
    given = {name: _as_text(value) for name, value in arguments.items() if value is not None}
    return given | dict(passed)


def vllm_downloads(setup: BackendSetup[Any]) -> dict[str, RemoteModel]:
    """Return what is copied to this host before vLLM starts, by option."""
    passed = setup.engine_arguments
    own = bool(OWN_DOWNLOADS & passed.keys()) or passed.get("load_format") in OWN_LOAD_FORMATS
    tokenizer = passed.get("tokenizer", "")
    tokenizers = {"tokenizer": RemoteModel(tokenizer)} if is_s3(tokenizer) else {}
    return engine_downloads(setup, from_hub=not own) | tokenizers


def lora_enabled(directory: Path, properties: VllmProperties) -> bool:
    return bool(adapter_folders(directory)) if properties.enable_lora is None else properties.enable_lora


def _lora_arguments(directory: Path, properties: VllmProperties) -> dict[str, object]:
    if not lora_enabled(directory, properties):
        return {}
    return {
        "enable_lora": True,
        "max_loras": properties.max_loras,
        "max_lora_rank": properties.max_lora_rank,
        "max_cpu_loras": properties.max_cpu_loras,
    }


def _speculative_arguments(directory: Path, properties: VllmProperties, passed: Mapping[str, str]) -> dict[str, object]:
    model = draft_model(directory, properties)
    recording: dict[str, object] = (
        {"per_request_spec_decode_metrics": "summary"} if properties.record_acceptance_rate else {}
    )
    if model is None:
        return recording if "speculative_config" in passed else {}
    if "speculative_config" in passed:
        raise ConfigurationError(
            "option.speculative_draft_model and option.speculative_config exclude each other: give one of them"
        )
    config: dict[str, object] = {
        "model": model,
        "num_speculative_tokens": properties.speculative_length,
    }
    if properties.draft_model_tp_size is not None:
        config["draft_tensor_parallel_size"] = properties.draft_model_tp_size
    return {"speculative_config": config, **recording}


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
