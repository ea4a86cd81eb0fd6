"""The base of handlers whose routes generate nothing."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, NonNegativeInt

from lmi_core.calls.access import Access
from lmi_core.calls.answer import json_answer
from lmi_core.calls.answer_form import failures
from lmi_core.errors import InvalidPayload, LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.handler import Answer, AnswerForm, Call, Generation, Handler, Route, RouteAnswer
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.registry.model_registry import ModelRegistry
from lmi_core.served_model import ServedModel, ServedModels
from lmi_handlers.answers.lmi import LmiRefusal
from lmi_handlers.base.statuses import USUAL, Statuses, front_end_error

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000


def registry_of(served: ServedModels) -> ModelRegistry:
    """Return the registry of a server's models."""
    assert isinstance(served, Dispatcher), served
    return served.registry


class Page(BaseModel):
    """The fields of a page of a list."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[
        int,
        Field(ge=1, le=MAX_LIMIT),
        BeforeValidator(lambda value: DEFAULT_LIMIT if value in ("", "-1", -1) else value),
    ] = Field(DEFAULT_LIMIT, description="The maximum number of entries to list; -1 means the default.")
    next_page_token: Annotated[NonNegativeInt, BeforeValidator(lambda value: value or 0)] = Field(
        0, description="The `nextPageToken` of the page before; empty for the first."
    )


def refusals(statuses: Statuses) -> tuple[AnswerForm, ...]:
    """Return the forms of errors with these statuses."""
    return (failures(LmiRefusal, statuses.invalid, *statuses.values()),)


def operator_route(
    path: str,
    method: str,
    answer: RouteAnswer,
    summary: str,
    answers: tuple[AnswerForm, ...],
    *payloads: type[BaseModel],
) -> Route:
    """Return a route for operators."""
    return Route(path, method, answer, summary, payloads, access=Access.OPERATORS, answers=answers)


class PlainHandler(Handler):
    """A handler of the server's own routes, with errors in LMI's form."""

    statuses: ClassVar[Statuses] = USUAL
    errors: ClassVar[tuple[AnswerForm, ...]] = refusals(USUAL)

    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        return path_parameters.get("model")

    def parse(self, call: Call, model: ServedModel) -> Generation:
        raise InvalidPayload(f"{call.path} does not generate text")

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        status = self.statuses.of(error)
        return json_answer(front_end_error(error.message, status), status)
