"""A path that a dialect answers on."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pydantic import BaseModel

from lmi_core.calls.answer import Answer
from lmi_core.calls.call import Call
from lmi_core.calls.served_model import ServedModels
from lmi_core.framing import Framing

READING_METHODS = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class Route:
    """A path, in which `{name}` matches one segment. It generates, unless it has an `answer` of its own."""

    path: str
    method: str = "POST"
    answer: Callable[[Call, ServedModels], Awaitable[Answer]] | None = None
    summary: str = ""  # for the OpenAPI document, as are the payloads: each a form that the body may have
    payloads: tuple[type[BaseModel], ...] = ()
    plain_text: bool = False  # a body of text/plain is taken too, as the prompt
    framing: Framing = field(default_factory=Framing)  # around an answer that is no error
    compresses: bool = False  # whole answers, where the client's `Accept-Encoding` asks for it
    # Pages of other web sites are refused: it changes the server, or tells what no page is to know.
    guarded: bool | None = None  # None: where it has an `answer` of its own and its method is no reading one

    @property
    def refuses_foreign_pages(self) -> bool:
        """Whether pages of other web sites may not use the route."""
        if self.guarded is not None:
            return self.guarded
        return self.answer is not None and self.method not in READING_METHODS
