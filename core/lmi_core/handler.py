"""The interface of an API dialect, and its routes."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import BaseModel

from lmi_core.calls.access import Access
from lmi_core.calls.answer import Answer
from lmi_core.calls.answer_form import AnswerForm
from lmi_core.calls.call import Call
from lmi_core.embedding_call import EmbeddingCall
from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.request import GenerationRequest
from lmi_core.inference import Inference
from lmi_core.served_model import ServedModel, ServedModels

__all__ = [
    "Answer",
    "AnswerForm",
    "Call",
    "EmbeddingCall",
    "Generation",
    "Handler",
    "Inference",
    "Route",
    "ServedModel",
]

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


@dataclass(frozen=True, slots=True)
class Generation:
    """A parsed call for text: the prompts, and the formatter of the answer."""

    requests: tuple[GenerationRequest, ...]
    formatter: OutputFormatter
    timeout: float | None = None  # seconds allowed for the answer
    ignored: tuple[str, ...] = ()  # names of unknown fields, including nested ones, that `parse` dropped
    request_id: str | None = None  # replaces the call's id, if its body sets one; None leaves it unchanged
    headers: Mapping[str, str] = field(default_factory=dict)  # headers of the response, whatever writes its body
    strict: bool = False  # reject unknown parameters regardless of option.strict_parameters


class Handler(ABC):
    """A reader of one API dialect, which also selects the formatter of its answers."""

    name: ClassVar[str]
    summary: ClassVar[str] = ""  # for the OpenAPI document: the owner of the API
    routes: ClassVar[tuple[Route, ...]]
    reads_embeddings: ClassVar[bool] = False  # whether `parse` also takes calls for models that do not generate
    errors: ClassVar[tuple[AnswerForm, ...]] = ()  # the forms of errors on all routes, for the OpenAPI document
    adapters_are_models: ClassVar[bool] = False  # whether a body may name an adapter in place of its model

    @abstractmethod
    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        """Return the model named in the path or the headers, or None."""

    def model_name_in_body(self, call: Call) -> str | None:
        """Return the model named in the body; called only if several models or versions are served.

        Raise InvalidPayload if the body cannot be read.
        """
        return None

    def served_name(self, name: str, models: ServedModels) -> str:
        """Return the served name of a model or adapter named in a body; by default the same.

        To word the message for an unknown name as the dialect does, raise ModelNotFound here.
        """
        return name

    def receive(self, call: Call, model: ServedModel) -> Call:
        """Return the call for the model's own code and `parse`. Raise InvalidPayload if it cannot be read."""
        return call

    def name_adapters(self, call: Call, model: ServedModel) -> Call:
        """Return the call with adapters named in the form common to all dialects, instead of this dialect's own.

        Not called if the model function answers. Raise InvalidPayload for invalid names of adapters.
        """
        return call

    @abstractmethod
    def parse(self, call: Call, model: ServedModel) -> Generation | Inference | EmbeddingCall | Answer:
        """Return the parsed call, or an Answer to a call that generates nothing.

        An Inference is only for models whose backend takes tensors. Long bodies are parsed outside the thread of the
        event loop. Raise InvalidPayload if the call cannot be parsed.
        """

    @abstractmethod
    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        """Return the answer to a call that failed before anything was sent.

        `model` and `formatter` are None until known.
        """

    def identified(self, answer: Answer, request_id: str) -> Answer:
        """Return an error with the request's id, if this dialect has a place for it besides the header."""
        return answer

    def relayed(self, answer: Answer) -> Answer:
        """Return the client's form of a whole answer of the model function."""
        return answer
