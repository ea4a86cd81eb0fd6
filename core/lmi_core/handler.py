"""The seam to an API dialect."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.framing import Framing
from lmi_core.inference import Inference
from lmi_core.request import GenerationRequest

if TYPE_CHECKING:
    from lmi_core.serving.dispatcher import Dispatcher
    from lmi_core.serving.model import Model

READING_METHODS = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request, read whole. Header names are matched without regard to case."""

    path_parameters: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    request_id: str
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    peer: str = ""  # the IP address that it came from


@dataclass(frozen=True, slots=True)
class Generation:
    """A call as its dialect understood it: the prompts, and what writes the answer."""

    requests: tuple[GenerationRequest, ...]
    formatter: OutputFormatter
    timeout: float | None = None  # most seconds for the answer
    ignored: tuple[str, ...] = ()  # what `parse` dropped, as nobody knows it, by the client's names
    strict: bool = False  # a parameter that nobody knows is an error, whatever option.strict_parameters says


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer that no formatter writes: an error before anything was sent, or what needs no generation."""

    status: int
    content_type: str
    body: bytes
    ignored: tuple[str, ...] = ()  # fields of the request that were dropped, as nobody knows them


@dataclass(frozen=True, slots=True)
class Route:
    """A path, in which `{name}` matches one segment. It generates, unless it has an `answer` of its own."""

    path: str
    method: str = "POST"
    answer: "Callable[[Call, Dispatcher], Awaitable[Answer]] | None" = None
    summary: str = ""  # for the OpenAPI document, as are the payloads: each a form that the body may have
    payloads: tuple[type[BaseModel], ...] = ()
    plain_text: bool = False  # a body of text/plain is taken too, as the prompt
    framing: Framing = field(default_factory=Framing)  # around an answer that is no error
    compresses: bool = False  # whole answers, where the client's `Accept-Encoding` asks for it
    # Pages of other web sites are refused: it changes the server, or tells what no page is to know.
    guarded: bool | None = None  # None: where it has an `answer` of its own and its method is no reading one

    @property
    def refuses_foreign_pages(self) -> bool:
        if self.guarded is not None:
            return self.guarded
        return self.answer is not None and self.method not in READING_METHODS


class Handler(ABC):
    """Reads one API dialect and chooses the formatter that writes it."""

    name: ClassVar[str]
    routes: ClassVar[tuple[Route, ...]]

    @abstractmethod
    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        """The model that a call names outside its body; None where it names none."""

    def model_name_in_body(self, body: bytes) -> str | None:
        """The model that a body names; asked for only where several models are served. Raises InvalidPayload."""
        return None

    def receive(self, call: Call, model: "Model") -> Call:
        """The call as its model's own code and `parse` are to see it. Raises InvalidPayload."""
        return call

    @abstractmethod
    def parse(self, call: Call, model: "Model") -> Generation | Inference:
        """An inference only of a model whose backend takes tensors. Raises InvalidPayload."""

    @abstractmethod
    def error(self, error: LmiError, model: "Model | None", formatter: OutputFormatter | None) -> Answer:
        """The answer to a call that failed before any of it was sent; `model` and `formatter` once they are known."""

    def relayed(self, answer: Answer) -> Answer:
        """What the client gets of a whole answer of the model's own `handle` function."""
        return answer
