"""The routes of a dialect."""

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
    """A path, in which `{name}` matches one segment; the route generates unless it has an `answer` function."""

    path: str
    method: str = "POST"
    answer: Callable[[Call, ServedModels], Awaitable[Answer]] | None = None
    summary: str = ""  # for the OpenAPI document, like the payloads, each a form of the body
    payloads: tuple[type[BaseModel], ...] = ()
    plain_text: bool = False  # a body of text/plain is accepted too, as the prompt
    framing: Framing = field(default_factory=Framing)  # around an answer other than an error
    compresses: bool = False  # compresses whole answers if the client's `Accept-Encoding` allows it
    # Refuse pages of other web sites, as the route changes the server or discloses what they must not know.
    guarded: bool | None = None  # None: if there is an `answer` and the method is not a reading one

    @property
    def refuses_foreign_pages(self) -> bool:
        """Whether pages of other web sites are refused."""
        if self.guarded is not None:
            return self.guarded
        return self.answer is not None and self.method not in READING_METHODS
