"""The types of responses, their events, and the answers about stored ones."""

from typing import Any, Literal

from typing_extensions import TypedDict

from lmi_core.calls.answer_form import EVENTS, AnswerForm, client_type, streamed

OpenAiResponse = client_type("Response", "A response, as in OpenAI's API.")
ResponseEvent = client_type("ResponseStreamEvent", "An event of a streamed response, as in OpenAI's API.")


class DeletedResponse(TypedDict):
    """A deleted response."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItems(TypedDict):
    """A page of a response's input items."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputTokens(TypedDict):
    """The number of tokens of a response's prompt."""

    object: Literal["response.input_tokens"]
    input_tokens: int


RESPONSES = (AnswerForm(OpenAiResponse), *streamed(ResponseEvent, EVENTS))
