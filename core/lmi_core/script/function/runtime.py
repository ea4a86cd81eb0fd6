"""The model function as a serving runtime, which answers whole requests without a backend."""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from typing import ClassVar

from lmi_core.calls.call import Call
from lmi_core.configuration.location import RemoteModel, is_s3
from lmi_core.errors import FormatterFailed
from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.script.formatters.input_formatters import call_properties
from lmi_core.script.function.pool import FunctionPool
from lmi_core.script.function.protocol import Chunk, Content, Head, Request
from lmi_core.script.function.setup import FunctionProperties, FunctionSetup
from lmi_core.serving_runtime import RuntimeSetup, ServingRuntime


class ModelFunction(ServingRuntime[FunctionProperties]):
    """The function in a `model.py`, which answers whole requests in worker processes."""

    name: ClassVar[str] = "model_function"
    properties_type = FunctionProperties

    def __init__(self, setup: RuntimeSetup[FunctionProperties]) -> None:
        super().__init__(setup)
        assert isinstance(setup, FunctionSetup), setup
        self.function = setup.load.function
        self._load = setup.load
        self._max_output_size = setup.max_output_size
        self.pool = FunctionPool(setup.load, setup.pool)

    @classmethod
    def downloads(cls, setup: RuntimeSetup[FunctionProperties]) -> Mapping[str, RemoteModel]:
        """Return the model with files of every format, because the function may read any of them."""
        model_id = setup.properties.model_id
        return {"model_id": RemoteModel(model_id, everything=True)} if model_id is not None and is_s3(model_id) else {}

    @classmethod
    def takes(cls, undeclared: Collection[str]) -> Collection[str]:
        """Return every undeclared key, because the function gets all of them as properties."""
        return undeclared

    async def start(self) -> None:
        self.progress.report(f"loading the model function {self.function}")
        await self.pool.start()

    async def stop(self) -> None:
        await self.pool.stop()

    async def health(self) -> None:
        self.pool.replicas.check_health()

    def figures(self) -> EngineFigures:
        return self.pool.figures()

    def process_ids(self) -> Collection[int]:
        return self.pool.replicas.process_ids

    async def given_up(self) -> str:
        return await self.pool.replicas.wait_given_up()

    @property
    def adapters(self) -> dict[str, Request]:
        """The call that registers each adapter, also in later processes."""
        return self._load.adapters

    def answer(
        self, call: Call, content: Content, client: str = "", begin: Callable[[], object] | None = None
    ) -> AsyncGenerator[Head | Chunk, None]:
        """Yield the head of the answer and, if it streams, its chunks; closing the generator cancels the call.

        `content` contains the parts of the call's query and body by name; clients take turns. `begin` is called when a
        process gets the call. Raise LmiError if the call fails.
        """
        replies = self.pool.submit(self.function, Request(call_properties(call), content), client, begin).answer()
        return _no_larger(replies, self._max_output_size)


async def _no_larger(replies: AsyncGenerator[Head | Chunk, None], max_bytes: int) -> AsyncGenerator[Head | Chunk, None]:
    """Yield the replies. Raise FormatterFailed if their total size exceeds `max_bytes`."""
    size = 0
    async with aclosing(replies):
        async for reply in replies:
            size += len(reply.data) if isinstance(reply, Chunk) else sum(len(value) for _, value in reply.content)
            if size > max_bytes:
                raise FormatterFailed(
                    f"the model function answered with more than option.max_output_size={max_bytes} bytes"
                )
            yield reply
