"""The routes of a dialect."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pydantic import BaseModel

from lmi_core.calls.access import Access
from lmi_core.calls.answer import Answer
from lmi_core.calls.answer_form import AnswerForm
from lmi_core.calls.call import Call
from lmi_core.errors import LmiError
from lmi_core.served_model import ServedModels

READING_METHODS = ("GET", "HEAD", "OPTIONS")


# The function of a route that does not generate: it receives the call and all models, and returns the whole answer.
RouteAnswer = Callable[[Call, ServedModels], Awaitable[Answer]]


class Framing:
    """The frame around each write; by default none. Routes with event streams have a subclass."""

    def headers(self, headers: dict[str, str]) -> dict[str, str]:
        """Return the headers of the framed answer, given the unframed ones."""
        return headers

    def frame(self, data: bytes) -> bytes:
        """Return one framed write."""
        return data

    def failure(self, error: LmiError) -> bytes:
        """Return the data to send after the formatter's error in an answer that has started."""
        return b""


@dataclass(frozen=True, slots=True)
class Route:
    """A path, in which `{name}` matches one segment; the route generates unless it has an `answer` function.

    `answer` is an `async def` that takes the Call and the ServedModels, and returns the whole Answer. It does not wait
    in a model's queue, unless it calls `ServedModels.admit`. An LmiError that it raises is answered by `Handler.error`.
    """

    path: str
    method: str = "POST"
    answer: RouteAnswer | None = None  # gets the call and all models; None if `Handler.parse` reads the call
    summary: str = ""  # for the OpenAPI document, like `payloads`, the types of the body
    payloads: tuple[type[BaseModel], ...] = ()
    plain_text: bool = False  # whether a text/plain body is accepted too, as the prompt
    framing: Framing = field(default_factory=Framing)  # the frame around answers, but not around errors
    compresses: bool = False  # compress whole answers if the client's `Accept-Encoding` allows it
    # Refuse requests from pages of other web sites, because the route changes the server or discloses private data.
    # None means yes if it is for operators, or if it has an `answer` and a method that changes something.
    guarded: bool | None = None
    # Leave clients whose `Accept` does not include this type, such as `text/html`, to the next route of the same path.
    media_type: str | None = None

    # Whether clients poll it, or pages load it, so often that only failures are logged above `debug`
    is_polled: bool = False
    answers: tuple[AnswerForm, ...] = ()  # for the OpenAPI document; if empty, answers may have any form
    # Who may use it; None means clients. A route that manages the server sets `Access.OPERATORS`
    access: Access | None = None

    @property
    def permitted(self) -> Access:
        """The clients that may use the route."""
        return Access.CLIENTS if self.access is None else self.access

    @property
    def is_for_clients(self) -> bool:
        """Whether clients may use the route; other routes are for operators."""
        return self.permitted in (Access.CLIENTS, Access.EVERYBODY)

    @property
    def refuses_foreign_pages(self) -> bool:
        """Whether requests from pages of other web sites are refused."""
        if self.guarded is not None or self.access is Access.OPERATORS:
            return self.guarded is not False
        return self.answer is not None and self.method not in READING_METHODS


def inquiry(
    path: str, answer: RouteAnswer, summary: str, payloads: tuple[type[BaseModel], ...], *answers: AnswerForm
) -> Route:
    """Return a route for clients that changes nothing although its method is POST, so any page may use it."""
    return Route(path, "POST", answer, summary, payloads, guarded=False, access=Access.CLIENTS, answers=answers)


def reading(path: str, answer: RouteAnswer, summary: str, *answers: AnswerForm, access: Access | None = None) -> Route:
    """Return a route whose method is GET."""
    return Route(path, "GET", answer, summary, access=access, answers=answers)
