"""The interface of one exchange with a client, over any protocol."""

from collections.abc import Awaitable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol, TypeVar

from lmi_core.errors import FormatterFailed
from lmi_core.formatter import AnswerWriter, OutputFormatter
from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.tensors import Tensor
from lmi_core.handler import Answer, Call, Handler
from lmi_core.inference import ResponseWriter
from lmi_core.metrics.request_record import RequestRecord
from lmi_core.script.function.protocol import Chunk, Head
from lmi_core.serving.model import Model
from lmi_handlers.access.key_usage import UNLIMITED, CountedRequest

R = TypeVar("R", covariant=True)

NO_PLACE = "this protocol has no place for such an answer"


class ModelExchange(Protocol[R]):
    """One request to a model, which reads the call and sends the answer; R is the result for the server."""

    handler: Handler
    headers: Mapping[str, str]  # the request's headers, or their equivalent in its protocol
    request_id: str
    client: str  # identifies the client whose requests take turns with others
    key: str | None  # the holder of the client's API key
    usage: CountedRequest  # checks the limits of that key
    model: Model | None  # None until it is found; the same applies to the formatter
    formatter: AnswerWriter | None
    answer_headers: Mapping[str, str]  # set by the parsed call
    record: RequestRecord

    def __init__(self, handler: Handler, headers: Mapping[str, str], request_id: str, client: str = "") -> None:
        self.handler, self.headers, self.request_id, self.client = handler, headers, request_id, client
        self.key, self.usage = None, UNLIMITED
        self.model = self.formatter = None
        self.answer_headers = {}
        self.record = RequestRecord(handler.name, request_id)

    def model_name(self, only: Model | None) -> str | None:
        """Return the model named outside of the request's body, or None; `only` is the only one ever served."""
        return None

    def model_version(self) -> str | None:
        """Return the version of the model named in the request, or None."""
        return None

    @property
    def is_received(self) -> bool:
        """Whether the whole request has arrived, so that refusing it unread saves nothing."""
        return True

    async def call(self, limit: int) -> Call:
        """Return the call. Raise PayloadTooLarge if it is longer than `limit` bytes."""

    def ignore(self, model: Model, names: Collection[str]) -> None:
        """Report ignored parameters to the client, and log each once."""
        return

    async def send(self, answer: Answer) -> R:
        """Send a complete answer, which ends the exchange."""
        raise FormatterFailed(NO_PLACE)

    def kept_alive(self, writer: AnswerWriter, seconds: float) -> AbstractAsyncContextManager[None]:
        """Whenever a stream is silent for that many seconds, send a message that clients skip; 0 disables this."""
        return nullcontext()

    def write(self, output: GenerationOutput, formatter: OutputFormatter) -> Awaitable[None]:
        """Format and send the newest step."""

    async def respond(self, response: Mapping[str, Tensor], writer: ResponseWriter) -> None:
        """Encode and send one of a backend's responses."""
        raise FormatterFailed(NO_PLACE)

    async def answer(self, answer: Answer) -> None:
        """Send a whole answer in the route's frame; `finish` follows."""
        raise FormatterFailed(NO_PLACE)

    async def relay(self, reply: Head | Chunk) -> None:
        """Send a part of the model function's answer."""
        raise FormatterFailed(NO_PLACE)

    async def finish(self) -> R:
        """End the answer."""
