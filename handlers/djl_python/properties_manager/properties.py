"""`Properties`, and the values of `rolling_batch` and `enable_streaming`."""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = ["Properties", "RollingBatchEnum", "StreamingEnum", "is_rolling_batch_enabled", "is_streaming_enabled"]


class RollingBatchEnum(StrEnum):
    """The values of `option.rolling_batch` in LMI; here it may name any backend."""

    vllm = "vllm"
    lmidist = "lmi-dist"
    auto = "auto"
    scheduler = "scheduler"
    disable = "disable"
    trtllm = "trtllm"


class StreamingEnum(StrEnum):
    true = "true"
    false = "false"
    huggingface = "huggingface"


class Choice(str):
    """Text with a `value`, like a member of an enumeration; a backend's name need not be one of LMI's."""

    @property
    def value(self) -> str:
        return str(self)


class Properties(BaseModel):
    """The properties that services and their callers read; all other properties are attributes too."""

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True, protected_namespaces=())

    engine: str | None = None
    model_id: str | None = None
    model_dir: str | None = None
    model_id_or_path: str | None = None
    rolling_batch: Choice = Choice("disable")
    enable_streaming: Choice = Choice("false")
    tensor_parallel_degree: int | str = -1
    trust_remote_code: bool = False
    batch_size: int = 1
    max_rolling_batch_size: int = 32
    dtype: str | None = None
    revision: str | None = None
    task: str | None = None
    output_formatter: Any = None
    input_formatter: Any = None
    tgi_compat: bool = False
    device: Any = None  # chosen by the engine
    device_map: str | None = None
    mpi_mode: bool = False
    loading_arguments: dict[str, Any] = Field(default_factory=dict)

    @field_validator("rolling_batch", "enable_streaming", mode="before")
    @classmethod
    def _choice(cls, value: Any) -> Choice:
        return Choice(str(getattr(value, "value", value)).lower())

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments that LMI's own scripts pass to transformers; the engine reads the properties themselves."""
        return self.loading_arguments

    def model_post_init(self, _: Any, /) -> None:
        self.model_id_or_path = self.model_id_or_path or self.model_id or self.model_dir


def is_rolling_batch_enabled(rolling_batch: object) -> bool:
    return rolling_batch not in (None, RollingBatchEnum.disable)


def is_streaming_enabled(enable_streaming: object) -> bool:
    return enable_streaming not in (None, StreamingEnum.false)
