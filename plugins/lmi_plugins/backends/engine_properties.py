"""The options common to the engines for Hugging Face models, and the folders of a model directory for them."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from lmi_core.backend import BackendSetup
from lmi_core.configuration.model_source import is_on_hub, model_source
from lmi_core.configuration.properties import ModelProperties, Names
from lmi_core.remote.location import RemoteModel, S3Location, is_s3
from lmi_core.script.formatters.model_code import ADAPTER_WEIGHTS

NGRAM = "[ngram]"  # vLLM's former name of prompt lookup, which drafts from the prompt itself


class EngineProperties(ModelProperties):
    """The options common to the torch engine and vLLM."""

    tensor_parallel_degree: Annotated[
        PositiveInt | Literal["max"] | None,
        Names(aliases=("tensor_parallel_size",), environment=("TENSOR_PARALLEL_DEGREE", "SM_NUM_GPUS")),
    ] = Field(None, description="Number of devices for tensor parallelism; max means all. Default: all.")
    pipeline_parallel_degree: Annotated[
        PositiveInt, Names(aliases=("pipeline_parallel_size",), environment=("PIPELINE_PARALLEL_DEGREE",))
    ] = Field(1, description="Number of stages for pipeline parallelism.")
    gpu_memory_utilization: Annotated[float | None, Names(environment=("CUDA_MEMORY_FRACTION",))] = Field(
        None,
        gt=0,
        le=1,
        description="Share of a GPU's memory for the model and its KV cache together.",
    )
    max_model_len: PositiveInt | None = Field(
        None, description="Maximum length of prompt and answer together, in tokens. Default: the model's own limit."
    )
    speculative_draft_model: Annotated[str | None, Names(aliases=("speculative_model",))] = Field(
        None,
        description="A folder, an s3:// URL or a Hugging Face hub id with a draft model for speculative decoding, a "
        "smaller model with the same vocabulary.",
    )
    speculative_length: Annotated[PositiveInt, Names(aliases=("num_speculative_tokens",))] = Field(
        5, description="Number of tokens that the draft model proposes at a time."
    )
    record_acceptance_rate: bool = Field(False, description="Log how many draft tokens of each request were accepted.")
    max_stream_delay: NonNegativeInt = Field(
        40,
        description="Maximum time that a token is held back, while many requests run, to be sent together with the "
        "next ones of its request, in milliseconds (with vLLM on average); 0 disables it.",
    )
    max_loras: PositiveInt = Field(4, description="Maximum number of LoRA adapters in use at the same time.")
    max_cpu_loras: PositiveInt | None = Field(
        None, description="Maximum number of LoRA adapters kept in main memory. Default: max_loras."
    )
    max_lora_rank: PositiveInt = Field(16, description="Maximum rank of a LoRA adapter.")


def adapter_folders(directory: Path, properties: ModelProperties) -> dict[str, Path]:
    """Return the model directory's adapter folders that hold weights, by name."""
    found = sorted((directory / properties.adapters).glob(f"*/{ADAPTER_WEIGHTS}"))
    return {path.parent.name: path.parent for path in found}


def draft_model(directory: Path, properties: EngineProperties) -> str | None:
    """Return the draft model: a folder, which may be relative to the model directory, an `s3://` URL or a hub id.

    Raise ConfigurationError where the URL is invalid.
    """
    name = properties.speculative_draft_model
    if name is not None and is_s3(name):
        S3Location.parse(name)
    return str(directory / name) if name is not None and (directory / name).is_dir() else name


def int8_warnings(dtype: str) -> list[str]:
    """Return a warning for `option.dtype=int8`, with which LMI-Dist once quantized the weights."""
    return (
        ["option.dtype=int8 has no effect: models are not quantized while loading, the weights keep their own type"]
        if dtype == "int8"
        else []
    )


def engine_downloads(setup: BackendSetup[Any], *, from_hub: bool = True) -> dict[str, RemoteModel]:
    """Return the remote ones of the model and the draft model, by option."""
    properties: EngineProperties = setup.properties
    models = {"model_id": RemoteModel(model_source(setup.directory, properties), properties.revision)}
    draft = draft_model(setup.directory, properties)
    if draft not in (None, NGRAM):
        models["speculative_draft_model"] = RemoteModel(str(draft))
    return {
        option: model
        for option, model in models.items()
        if is_s3(model.source) or (from_hub and is_on_hub(model.source))
    }
