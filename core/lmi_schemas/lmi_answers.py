"""The types of LMI's answers (LMI handlers Inference API Schema, v0.28), which output formatters of plugins write."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from lmi_core.generation.output import FinishReason

AsyncFinishReason = Literal["stop", "length", "abort"]


LmiTopToken = TypedDict("LmiTopToken", {"id": int, "text": str, "log_prob": float | None})


class LmiToken(LmiTopToken):
    """A token; the first token of a prompt has no log probability."""

    top_tokens: NotRequired[list[LmiTopToken]]


LmiEnd = TypedDict("LmiEnd", {"finish_reason": FinishReason, "generated_tokens": int})


class LmiSequence(LmiEnd):
    """A further sequence of an answer."""

    tokens: list[LmiToken]
    generated_text: str
    top_tokens: NotRequired[list[list[LmiTopToken]]]
    prefill: NotRequired[list[LmiToken]]


class LmiStreamDetails(LmiEnd):
    """The details at the end of a stream, if requested."""

    inputs: str
    prefill: NotRequired[list[LmiToken]]


class LmiDetails(LmiStreamDetails):
    """The details of a whole answer, if requested."""

    tokens: list[LmiToken]
    top_tokens: NotRequired[list[list[LmiTopToken]]]
    best_of_sequences: NotRequired[list[LmiSequence]]


LmiAnswer = TypedDict("LmiAnswer", {"generated_text": str, "details": NotRequired[LmiDetails]})


class LmiChunk(TypedDict):
    """A line or an event of a streamed answer; the last one has the whole text."""

    token: LmiToken
    generated_text: NotRequired[str]
    details: NotRequired[LmiStreamDetails]


class TgiCompatTopToken(LmiTopToken):
    """A token as `option.tgi_compat` has it, with the log probability under both names."""

    logprob: float | None
    special: bool


class TgiCompatToken(TgiCompatTopToken):
    """A token of a prompt, with the most likely ones at its position."""

    top_tokens: NotRequired[list[TgiCompatTopToken]]


class TgiCompatSequenceEnd(LmiEnd):
    """The details that every sequence has with `option.tgi_compat`."""

    seed: int | None
    prefill: list[TgiCompatToken]


class TgiCompatSequence(TgiCompatSequenceEnd):
    """A further sequence of an answer with `option.tgi_compat`."""

    tokens: list[TgiCompatTopToken]
    generated_text: str
    top_tokens: NotRequired[list[list[TgiCompatTopToken]]]


class TgiCompatEnd(TgiCompatSequenceEnd):
    """The details of the end with `option.tgi_compat`."""

    inputs: str


class TgiCompatDetails(TgiCompatEnd):
    """The details of a whole answer with `option.tgi_compat`, if requested."""

    tokens: list[TgiCompatTopToken]
    top_tokens: NotRequired[list[list[TgiCompatTopToken]]]
    best_of_sequences: NotRequired[list[TgiCompatSequence]]


TgiCompatAnswer = TypedDict("TgiCompatAnswer", {"generated_text": str, "details": NotRequired[TgiCompatDetails]})


class TgiCompatStreamDetails(TgiCompatEnd):
    """The details of the last event with `option.tgi_compat`."""

    input_length: int


class TgiCompatChunk(TypedDict):
    """A line or an event of a streamed answer with `option.tgi_compat`."""

    index: int
    token: TgiCompatTopToken
    top_tokens: NotRequired[list[TgiCompatTopToken]]
    generated_text: str | None
    details: TgiCompatStreamDetails | None


AsyncToken = TypedDict("AsyncToken", {"id": int, "text": str, "logprob": float | None})
AsyncEnd = TypedDict("AsyncEnd", {"finish_reason": AsyncFinishReason, "generated_tokens": int, "seed": int | None})


class AsyncDetails(AsyncEnd):
    """The details of a whole answer in LMI's asynchronous mode, if requested."""

    prefill: list[AsyncToken]
    tokens: list[AsyncToken]


AsyncAnswer = TypedDict("AsyncAnswer", {"generated_text": str, "details": NotRequired[AsyncDetails]})


class AsyncStreamDetails(AsyncEnd):
    """The details at the end of a stream in LMI's asynchronous mode, if requested."""

    input_length: int


class AsyncChunk(TypedDict):
    """A line of a streamed answer in LMI's asynchronous mode, with the index of its sequence."""

    index: int
    token: AsyncToken
    generated_text: str | None
    details: AsyncStreamDetails | None


DynamicBatchAnswer = TypedDict("DynamicBatchAnswer", {"generated_text": str})  # to one of the prompts
# A line of a streamed dynamic batch: each prompt's new text, "" once it has ended.
DynamicBatchChunk = TypedDict("DynamicBatchChunk", {"outputs": list[str]})
DynamicBatchError = TypedDict("DynamicBatchError", {"code": Literal[424], "message": str, "error": str})


class LmiFailedDetails(TypedDict):
    """The details of a failed request."""

    finish_reason: Literal["error"]
    generated_tokens: None
    inputs: None
    tokens: NotRequired[None]


class LmiFailure(TypedDict):
    """The answer to a failed request; `error_type` is present with `option.tgi_compat`."""

    generated_text: Literal[""]
    details: LmiFailedDetails
    error: str
    error_type: NotRequired[str]


class LmiFailedToken(TypedDict):
    """The token of a failed stream's last chunk."""

    id: Literal[-1]
    text: Literal[""]
    log_prob: Literal[-1]
    special_token: Literal[True]


class LmiFailedChunk(LmiFailure):
    """The last chunk of a failed stream."""

    token: LmiFailedToken
