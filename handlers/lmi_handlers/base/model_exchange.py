"""The interface of one exchange with a client, whatever protocol carries it."""

from collections.abc import Awaitable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from lmi_core.formatter import AnswerWriter, OutputFormatter
from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.tensors import Tensor
from lmi_core.handler import Answer, Call, Handler
from lmi_core.inference import ResponseWriter
from lmi_core.metrics.request_record import RequestRecord
from lmi_core.script.function.protocol import Chunk, Head
from lmi_core.serving.model import Model

R = TypeVar("R", covariant=True)


class ModelExchange(Protocol[R]):
    """One request to a model, which reads the call and sends the answer; R is what the server gets once it is sent."""

    request_id: str
    client: str  # whose requests take turns with those of others
    key: str | None  # the holder of the client's API key
    model: Model | None
    formatter: AnswerWriter | None
    answer_headers: Mapping[str, str]  # those that the parsed call asks for
    record: RequestRecord

    @property
    def handler(self) -> Handler: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's headers, or what its protocol has for them."""

    def model_name(self) -> str | None:
        """Return the model that the request names outside of its body, or None."""

    def model_version(self) -> str | None:
        """Return the version of the model that the request names, or None."""

    @property
    def is_received(self) -> bool:
        """Whether the whole request has come, so that nothing is saved by refusing it unread."""

    async def call(self, limit: int) -> Call:
        """Return the call. Raise PayloadTooLarge where it is longer than `limit` bytes."""

    def ignore(self, model: Model, names: Collection[str]) -> None:
        """Tell the client of ignored parameters, and log each once."""

    async def send(self, answer: Answer) -> R:
        """Send a complete answer, which ends the exchange."""

    def kept_alive(self, writer: AnswerWriter, seconds: float) -> AbstractAsyncContextManager[None]:
        """Send something that clients skip whenever a stream was silent for that many seconds; 0 disables it."""

    def write(self, output: GenerationOutput, formatter: OutputFormatter) -> Awaitable[None]:
        """Format and send the newest step."""

    async def respond(self, response: Mapping[str, Tensor], writer: ResponseWriter) -> None:
        """Encode and send one of a backend's responses."""

    async def answer(self, answer: Answer) -> None:
        """Send an answer that is complete at once, within the route's frame; `finish` follows."""

    async def relay(self, reply: Head | Chunk) -> None:
        """Send a part of the model function's answer."""

    async def finish(self) -> R:
        """End the answer."""
