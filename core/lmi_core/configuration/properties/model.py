"""The keys that describe the model for a backend."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt

from lmi_core.configuration.properties.declaration import Names, Properties

# The names are DJLServing's, vLLM's and Hugging Face's.
GENERATION_TASKS = ("text-generation", "generate", "image-text-to-text")
EMBEDDING_TASKS = (
    "text-embedding",
    "text_embedding",
    "embed",
    "embedding",
    "feature-extraction",
    "sentence-similarity",
)


SCORE_TASKS = ("reranking", "rerank", "text-ranking", "text-classification", "score", "classify")


def _served_here(task: str | None) -> str | None:
    task = task and task.lower()
    if task not in (None, "auto", *GENERATION_TASKS, *EMBEDDING_TASKS, *SCORE_TASKS):
        known = f"{GENERATION_TASKS[0]}, {EMBEDDING_TASKS[0]} or {SCORE_TASKS[0]}"
        raise ValueError(f"must be {known}, the tasks that this server supports")
    return task


class ModelProperties(Properties):
    """The model that a backend loads; a backend adds its own keys in a subclass."""

    model_id: Annotated[str | None, Names(aliases=("s3url",), environment=("HF_MODEL_ID",))] = Field(
        default=None,
        description="The weights: a folder, an s3:// URL or a Hugging Face hub id. Default: the model directory.",
    )
    revision: Annotated[str | None, Names(environment=("HF_REVISION", "HF_MODEL_REVISION"))] = Field(
        default=None, description="Branch, tag or commit of the model on the hub."
    )
    trust_remote_code: Annotated[bool, Names(environment=("HF_MODEL_TRUST_REMOTE_CODE", "HF_TRUST_REMOTE_CODE"))] = (
        Field(default=False, description="Allow Python code in the model's repository to run when the model is loaded.")
    )
    allow_pickle: bool = Field(
        default=False,
        description="Allow weights and adapters in PyTorch's own format (.bin, .pt), which uses Python's pickle and "
        "can contain code. By default, only safetensors are read.",
    )
    max_rolling_batch_size: Annotated[PositiveInt, Names(environment=("MAX_BATCH_SIZE",))] = Field(
        default=32, description="Maximum number of requests that generate at the same time."
    )
    adapters: str = Field(default="adapters", description="The folder of LoRA adapters in the model directory.")
    task: Annotated[str | None, Names(environment=("HF_TASK",)), AfterValidator(_served_here)] = Field(
        default=None,
        description="The task of the model: text-generation, text-embedding or reranking. Default: detected from the "
        "model's files.",
    )

    @property
    def asked_task(self) -> Literal["generate", "embed", "score"] | None:
        """The model's task; None means the task in the model's own files."""
        if self.task in EMBEDDING_TASKS:
            return "embed"
        if self.task in SCORE_TASKS:
            return "score"
        return "generate" if self.task in GENERATION_TASKS else None
