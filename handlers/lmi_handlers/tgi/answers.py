"""The types of the answers on TGI's routes."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from lmi_core.calls.answer_form import EVENTS, TEXT, AnswerForm, failures, stream_forms
from lmi_core.generation.output import FinishReason
from lmi_handlers.answers.lmi import TextVectors
from lmi_schemas.tgi_errors import TgiError


class TgiPromptToken(TypedDict):
    """A token of the prompt; the first one has no log probability."""

    id: int
    text: str
    logprob: float | None


class TgiToken(TgiPromptToken):
    """A generated token."""

    special: bool


class TgiEnd(TypedDict):
    """The details of a sequence's end."""

    finish_reason: FinishReason
    generated_tokens: int
    seed: int | None


class TgiSequenceDetails(TgiEnd):
    """The details of a sequence, if requested."""

    prefill: list[TgiPromptToken]
    tokens: list[TgiToken]
    top_tokens: NotRequired[list[list[TgiToken]]]


class TgiSequence(TgiSequenceDetails):
    """A further sequence of an answer."""

    generated_text: str


class TgiDetails(TgiSequenceDetails):
    """The details of a whole answer, if requested."""

    best_of_sequences: NotRequired[list[TgiSequence]]


TgiAnswer = TypedDict("TgiAnswer", {"generated_text": str, "details": NotRequired[TgiDetails]})


class TgiStreamDetails(TgiEnd):
    """The details of the last event, if requested."""

    input_length: int


class TgiStreamEvent(TypedDict):
    """An event of a stream; the last one has the whole text."""

    index: int
    token: TgiToken
    top_tokens: NotRequired[list[TgiToken]]
    generated_text: str | None
    details: TgiStreamDetails | None


class TgiInfo(TypedDict):
    """The served model and its limits."""

    model_id: str
    model_sha: None
    model_pipeline_tag: Literal["text-generation", "feature-extraction", "text-ranking"]
    max_concurrent_requests: int
    max_best_of: int
    max_stop_sequences: int
    max_input_tokens: int
    max_total_tokens: int
    validation_workers: int
    max_client_batch_size: int
    router: str
    version: str
    sha: None
    docker_label: None


ANSWER = (AnswerForm(TgiAnswer),)
STREAM = stream_forms(TgiStreamEvent | TgiError, EVENTS)
ROOT = (AnswerForm(list[TgiAnswer]), *STREAM)
VECTORS = (AnswerForm(TextVectors),)
INFO = (AnswerForm(TgiInfo),)
HEALTH = (AnswerForm(None, TEXT),)
ERRORS = (failures(TgiError, 403, 404, 408, 413, 415, 422, 424, 429, 500, 503),)
