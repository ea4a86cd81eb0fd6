"""The types of the answers on Triton's routes."""

from typing import Any, Literal, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from lmi_core.calls.answer_form import EVENTS, JSON, AnswerForm, failures, stream_forms
from lmi_core.generation.tensors import TensorType

BINARY = "application/octet-stream"


@with_config(ConfigDict(extra="allow"))
class TritonAnswer(TypedDict):
    """An answer of the generate extension, with the requested outputs; lists for several sequences.

    A tensor model has a member for each of its outputs.
    """

    id: NotRequired[str]
    model_name: str
    model_version: str
    text_output: NotRequired[str | list[str]]
    finish_reason: NotRequired[str | list[str]]
    cumulative_logprob: NotRequired[float | list[float]]
    logprobs: NotRequired[str | list[str]]
    num_input_tokens: NotRequired[int]
    num_output_tokens: NotRequired[int | list[int]]
    cum_log_probs: NotRequired[float | list[float]]
    output_log_probs: NotRequired[list[float | list[float | None] | None]]


class TritonError(TypedDict):
    """An error in Triton's form."""

    error: str


class BinarySize(TypedDict):
    """The number of bytes of a tensor after the JSON object."""

    binary_data_size: int


class InferredTensor(TypedDict):
    """An output; its data in row-major order, or after the JSON object as bytes."""

    name: str
    datatype: TensorType
    shape: list[int]
    data: NotRequired[list[Any]]
    parameters: NotRequired[BinarySize]


class InferAnswer(TypedDict):
    """An answer of KServe's inference protocol."""

    id: NotRequired[str]
    model_name: str
    model_version: str
    outputs: list[InferredTensor]


class DescribedTensor(TypedDict):
    """A tensor of a model; -1 is a dimension of any size."""

    name: str
    datatype: TensorType
    shape: list[int]


class TritonModel(TypedDict):
    """A model's metadata."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[DescribedTensor]
    outputs: list[DescribedTensor]


class TritonConfiguration(TypedDict):
    """A model's configuration."""

    name: str
    platform: str
    backend: str
    version_policy: dict[str, Any]
    max_batch_size: int
    input: list[dict[str, Any]]
    output: list[dict[str, Any]]
    model_transaction_policy: dict[str, bool]


class TritonStatistics(TypedDict):
    """The statistics of one or all models."""

    model_stats: list[dict[str, Any]]


class TritonServer(TypedDict):
    """The server's metadata."""

    name: str
    version: str
    extensions: list[str]


class IndexedModel(TypedDict):
    """A model of the repository, with its state."""

    name: str
    version: str
    state: Literal["READY", "LOADING", "UNAVAILABLE"]
    reason: str


FAILED_STREAM = (424, 499, 500, 504)  # statuses before the first event, which is then the error
STATUSES = (400, 403, 404, 408, 413, 415, 424, 499, 500, 503, 504)
GENERATED = (AnswerForm(TritonAnswer),)
STREAMED = (
    *stream_forms(TritonAnswer | TritonError, EVENTS),
    failures(TritonError, *FAILED_STREAM),
    failures(TritonError, *FAILED_STREAM, content_type=EVENTS),
)
INFERRED = (AnswerForm(InferAnswer), AnswerForm(None, BINARY))
EMPTY = (AnswerForm(None, JSON),)
ERRORS = (failures(TritonError, *STATUSES),)
