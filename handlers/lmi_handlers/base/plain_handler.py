"""The base of handlers whose routes generate nothing."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel

from lmi_core.calls.access import Access
from lmi_core.calls.answer import json_answer
from lmi_core.calls.answer_form import failures
from lmi_core.errors import InvalidPayload, LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.handler import Answer, AnswerForm, Call, Generation, Handler, Route
from lmi_core.route import RouteAnswer
from lmi_core.served_model import ServedModel
from lmi_handlers.answers.lmi import LmiRefusal
from lmi_handlers.base.front_end_errors import front_end_error
from lmi_handlers.base.statuses import USUAL, Statuses


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
