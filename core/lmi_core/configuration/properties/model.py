"""The keys that describe the model for a backend."""

from typing import Annotated

from pydantic import AfterValidator, Field, PositiveInt

from lmi_core.configuration.properties.declaration import Names, Properties

TEXT_GENERATION = "text-generation"


def _text_generation(task: str | None) -> str | None:
    if task is not None and task not in (TEXT_GENERATION, "generate", "auto"):
        raise ValueError(f"must be {TEXT_GENERATION}, the only task that this server supports")
    return task


class ModelProperties(Properties):
    """The model that a backend loads; a backend adds its own keys in a subclass."""

    model_id: Annotated[str | None, Names(aliases=("s3url",), environment=("HF_MODEL_ID",))] = Field(
        default=None,
        description="A folder, an s3:// URL or a Hugging Face hub id with the weights. Default: the model directory.",
    )
    revision: Annotated[str | None, Names(environment=("HF_REVISION",))] = Field(
        default=None, description="Branch, tag or commit of the model on the hub."
    )
    trust_remote_code: Annotated[bool, Names(environment=("HF_MODEL_TRUST_REMOTE_CODE",))] = Field(
        default=False, description="Allow the model's repository to bring Python code that is run to load it."
    )
    max_rolling_batch_size: Annotated[PositiveInt, Names(environment=("MAX_BATCH_SIZE",))] = Field(
        default=32, description="Maximum number of requests that generate at the same time."
    )
    adapters: str = Field(default="adapters", description="The folder of LoRA adapters in the model directory.")
    task: Annotated[str | None, Names(environment=("HF_TASK",)), AfterValidator(_text_generation)] = Field(
        default=None, description="Must be text-generation; other tasks are refused."
    )
