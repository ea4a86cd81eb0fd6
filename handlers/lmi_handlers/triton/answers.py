"""The types of the answers on Triton's routes."""

from typing import Any, Literal, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from lmi_core.calls.answer_form import EVENTS, JSON, AnswerForm, failures, stream_forms
from lmi_core.generation.tensors import TensorType
from lmi_handlers.answers.openai import PlainError

BINARY = "application/octet-stream"


class TritonHead(TypedDict):
    """The first members of answers."""

    id: NotRequired[str]
    model_name: str
    model_version: str


@with_config(ConfigDict(extra="allow"))
class TritonAnswer(TritonHead):
    """An answer of the generate extension, with the requested outputs; lists for several sequences.

    A tensor model has a member for each of its outputs.
    """

    text_output: NotRequired[str | list[str]]
    finish_reason: NotRequired[str | list[str]]
    cumulative_logprob: NotRequired[float | list[float]]
    logprobs: NotRequired[str | list[str]]
    num_input_tokens: NotRequired[int]
    num_output_tokens: NotRequired[int | list[int]]
    cum_log_probs: NotRequired[float | list[float]]
    output_log_probs: NotRequired[list[float | list[float | None] | None]]


# The number of bytes of a tensor after the JSON object; -1 in a model's shapes is a dimension of any size.
BinarySize = TypedDict("BinarySize", {"binary_data_size": int})
DescribedTensor = TypedDict("DescribedTensor", {"name": str, "datatype": TensorType, "shape": list[int]})


class InferredTensor(DescribedTensor):
    """An output; its data in row-major order, or after the JSON object as bytes."""

    data: NotRequired[list[Any]]
    parameters: NotRequired[BinarySize]


class InferAnswer(TritonHead):
    """An answer of KServe's inference protocol."""

    outputs: list[InferredTensor]


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


TritonStatistics = TypedDict("TritonStatistics", {"model_stats": list[dict[str, Any]]})
TritonServer = TypedDict("TritonServer", {"name": str, "version": str, "extensions": list[str]})


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
    *stream_forms(TritonAnswer | PlainError, EVENTS),
    failures(PlainError, *FAILED_STREAM),
    failures(PlainError, *FAILED_STREAM, content_type=EVENTS),
)
INFERRED = (AnswerForm(InferAnswer), AnswerForm(None, BINARY))
EMPTY = (AnswerForm(None, JSON),)
ERRORS = (failures(PlainError, *STATUSES),)
