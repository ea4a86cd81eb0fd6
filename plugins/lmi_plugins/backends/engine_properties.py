"""The options common to the engines for Hugging Face models, and the folders of a model directory for them."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator

from lmi_core.backend import BackendSetup
from lmi_core.configuration.location import RemoteModel, must_be_copied
from lmi_core.configuration.model_source import copied_source, is_on_hub, model_source
from lmi_core.configuration.properties import ModelProperties, Names
from lmi_core.script.formatters.model_code import ADAPTER_WEIGHTS
from lmi_core.workers.heartbeat import HEARTBEAT_TIMEOUT
from lmi_plugins.torch_engine.messages.embeddings import Pooling
from lmi_plugins.torch_engine.messages.requests import GuideLimits

ANY = "any"  # vectors may be shortened to any size
NGRAM = "[ngram]"  # vLLM's former name for prompt lookup, which drafts from the prompt itself


class EmbeddingProperties(ModelProperties):
    """The options of embedding models."""

    pooling: Literal["cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken", "last"] | None = Field(
        None,
        description="How the hidden states of a text are combined into a vector. Default: as configured in the "
        "model's files, otherwise the first token, or the last one for models that generate.",
    )
    normalize: bool | None = Field(
        None,
        description="Normalize vectors to length 1. Default: as in the model's sentence-transformers files, or true "
        "without such files.",
    )
    matryoshka_dimensions: str | None = Field(
        None,
        description="Smaller sizes to which requests may truncate vectors, separated by commas, or any. Default: "
        "those in the model's configuration.",
    )

    @field_validator("matryoshka_dimensions")
    @classmethod
    def _sizes(cls, value: str | None) -> str | None:
        if value not in (None, ANY) and not all(each.isdigit() and int(each) for each in _items(value)):
            raise ValueError(f"must be numbers above 0 with commas between, or {ANY}")
        return value

    @property
    def any_size(self) -> bool:
        """Whether vectors may be cut to any size."""
        return self.matryoshka_dimensions == ANY

    @property
    def smaller_sizes(self) -> list[int] | None:
        """The sizes to which vectors may be cut; None means the model's own."""
        if self.matryoshka_dimensions in (None, ANY):
            return None
        return sorted({int(each) for each in _items(self.matryoshka_dimensions)})

    @property
    def engine_pooling(self) -> Pooling | None:
        """The pooling by the engine's name."""
        return "lasttoken" if self.pooling == "last" else self.pooling


def _items(value: str | None) -> list[str]:
    return (value or "").strip("[] ").replace(",", " ").split() or [""]


class GuideProperties(ModelProperties):
    """The limits of one schema, regular expression, grammar, list of choices or structural tag."""

    max_guide_size: PositiveInt = Field(
        2**20,
        description="Maximum size of a structured-output constraint (schema, regular expression, grammar, list of "
        "choices or structural tag), in bytes.",
    )
    guide_compile_timeout: PositiveInt = Field(
        20, description="Maximum CPU time for compiling a constraint, in seconds."
    )
    guide_memory_limit: PositiveInt = Field(
        512 * 2**20, description="Maximum memory for compiling a constraint, in bytes."
    )
    guide_mask_timeout: PositiveInt = Field(
        50,
        description="Maximum CPU time for computing the tokens that a constraint allows next in a sequence, in "
        "milliseconds; a request that needs more ends with an error.",
    )

    @property
    def guide_limits(self) -> GuideLimits:
        return GuideLimits(
            size=self.max_guide_size,
            compile_seconds=self.guide_compile_timeout,
            memory=self.guide_memory_limit,
            mask_seconds=self.guide_mask_timeout / 1000,
        )


class EngineProperties(EmbeddingProperties, GuideProperties):
    """The options common to the torch engine and vLLM."""

    tensor_parallel_degree: Annotated[
        PositiveInt | Literal["max", "-1"] | None,
        Names(aliases=("tensor_parallel_size",), environment=("TENSOR_PARALLEL_DEGREE", "SM_NUM_GPUS")),
    ] = Field(None, description="Number of devices for tensor parallelism; max or -1 means all. Default: all.")
    pipeline_parallel_degree: Annotated[
        PositiveInt, Names(aliases=("pipeline_parallel_size",), environment=("PIPELINE_PARALLEL_DEGREE",))
    ] = Field(1, description="Number of stages for pipeline parallelism.")
    gpu_memory_utilization: Annotated[float | None, Names(environment=("CUDA_MEMORY_FRACTION",))] = Field(
        None,
        gt=0,
        le=1,
        description="Share of each GPU's memory for the model and its KV cache.",
    )
    max_model_len: PositiveInt | None = Field(
        None, description="Maximum length of prompt and answer together, in tokens. Default: the model's own limit."
    )
    speculative_draft_model: Annotated[str | None, Names(aliases=("speculative_model",))] = Field(
        None,
        description="Draft model for speculative decoding, a smaller model with the same vocabulary: a folder, an "
        "s3:// URL or a Hugging Face hub id.",
    )
    speculative_length: Annotated[PositiveInt, Names(aliases=("num_speculative_tokens",))] = Field(
        5, description="Number of tokens that the draft model proposes at a time."
    )
    record_acceptance_rate: bool = Field(False, description="Log how many draft tokens of each request were accepted.")
    max_stream_delay: NonNegativeInt = Field(
        50,
        description="Maximum time that a token is held back, when many requests run, to be sent together with later "
        "ones of its request, in milliseconds (with vLLM, on average); 0 disables it.",
    )
    heartbeat_timeout: NonNegativeInt = Field(
        HEARTBEAT_TIMEOUT,
        description="Time without a heartbeat after which an engine counts as frozen and is killed and restarted, in "
        "seconds; 0 disables it. While vLLM's workers compute, the limit is ten times as long.",
    )
    resume: bool = Field(
        True,
        description="When an engine dies, continue its requests on the next one, unnoticed by clients; if false, "
        "they end with an error.",
    )
    max_loras: PositiveInt = Field(4, description="Maximum number of LoRA adapters in use at the same time.")
    max_cpu_loras: PositiveInt | None = Field(
        None, description="Maximum number of LoRA adapters kept in main memory. Default: max_loras."
    )
    max_lora_rank: PositiveInt = Field(16, description="Maximum rank of a LoRA adapter.")


def adapter_folders(directory: Path, properties: ModelProperties) -> dict[str, Path]:
    """Return the model directory's adapter folders with weights, by name."""
    found = sorted((directory / properties.adapters).glob(f"*/{ADAPTER_WEIGHTS}"))
    return {path.parent.name: path.parent for path in found}


def draft_model(directory: Path, properties: EngineProperties) -> str | None:
    """Return the draft model: a folder, which may be relative to the model directory, a remote source, or a hub id.

    Raise ConfigurationError if the URL is invalid.
    """
    name = properties.speculative_draft_model
    if name is not None and (copied := copied_source(directory, name)) is not None:
        return copied
    return str(directory / name) if name is not None and (directory / name).is_dir() else name


def int8_warnings(dtype: str) -> list[str]:
    """Return a warning for `option.dtype=int8`, with which LMI-Dist once quantized the weights."""
    return (
        ["option.dtype=int8 has no effect: models are not quantized while loading; the weights keep their own type"]
        if dtype == "int8"
        else []
    )


def engine_downloads(setup: BackendSetup[Any], *, from_hub: bool = True) -> dict[str, RemoteModel]:
    """Return the remote sources among the model and the draft model, by option."""
    properties: EngineProperties = setup.properties
    models = {"model_id": RemoteModel(model_source(setup.directory, properties), properties.revision)}
    draft = draft_model(setup.directory, properties)
    if draft not in (None, NGRAM):
        models["speculative_draft_model"] = RemoteModel(str(draft))
    return {
        option: model
        for option, model in models.items()
        if must_be_copied(model.source) or (from_hub and is_on_hub(model.source))
    }
