"""The server's side of one process that runs a model function."""

import asyncio
import itertools
import logging
from contextlib import AbstractAsyncContextManager, nullcontext, suppress

from lmi_core.errors import GenerationFailed, GenerationTimeout, LmiError
from lmi_core.script.function.calls import FunctionBatch
from lmi_core.script.function.protocol import (
    Cancel,
    End,
    FromWorker,
    Handle,
    Load,
    Loaded,
    Reply,
    Working,
    decode_from_worker,
)
from lmi_core.workers.conversation import Conversation
from lmi_core.workers.item_queue import ItemQueue
from lmi_core.workers.local_process import LocalProcess

logger = logging.getLogger(__name__)

TARGET = "lmi_core.script.function.worker:run"


class FunctionProcess:
    """The server's side of one process.

    If the process dies, or is killed because a call took too long, its calls fail and `died` is set.
    """

    def __init__(self, predict_timeout: float, python: str | None = None) -> None:
        self.died = asyncio.Event()
        self.number = 0  # its number in the pool
        self.calls = 0  # running calls
        self.idle_since: float | None = None  # on the event loop's clock; None: it is in use
        self.loaded = Loaded(1, [])
        self._predict_timeout = predict_timeout
        self._rolling = False  # whether each call of the function works on all requests of the process
        self._worker = Conversation(LocalProcess(TARGET, python=python), decode_from_worker)
        self._ids = itertools.count(1)
        self._replies: dict[int, ItemQueue[Reply | Working]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._places: AbstractAsyncContextManager[object] = nullcontext()  # the function's slots for calls

    @property
    def process_id(self) -> int | None:
        return self._worker.endpoint.process_id

    @property
    def free(self) -> bool:
        limit = self.loaded.max_calls
        return not self.died.is_set() and (limit is None or self.calls < limit)

    async def start(self, load: Load) -> None:
        """Start the process, and let it load the script. Raise ConfigurationError if this fails."""

        async def message() -> Load:
            return load

        answer = await self._worker.load(message, f"{load.script} could not be loaded")
        assert isinstance(answer, Loaded), answer
        self.loaded = answer
        self._rolling = load.rolling_batch_size is not None
        if answer.max_calls is not None:
            self._places = asyncio.Semaphore(answer.max_calls)
        self._reader = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader
        await self._die(_lost_error("the worker was stopped"))

    def fail_calls(self, error: LmiError) -> None:
        """End the running calls with an error, whether or not the function ends."""
        for replies in self._replies.values():
            replies.fail(error)

    async def run(self, batch: FunctionBatch) -> None:
        """Let the function answer a batch, and return when it is done, even if every request is cancelled."""
        self.calls += 1
        try:
            async with self._places:
                await self._run(batch)
        finally:
            self.calls -= 1

    async def _run(self, batch: FunctionBatch) -> None:
        call_id = next(self._ids)
        replies = self._replies[call_id] = ItemQueue[Reply | Working]()
        if self.died.is_set():
            replies.fail(_lost_error("its worker died"))
        batch.on_cancel(lambda: self._send(Cancel(call_id)))
        batch.begin()
        self._send(Handle(call_id, batch.function, batch.requests))
        try:
            while not isinstance(reply := await self._next(replies), End):
                if not isinstance(reply, Working):
                    batch.deliver(reply)
            batch.on_cancel(None)
            batch.deliver(reply)
        except LmiError as error:
            batch.fail(error)
        finally:
            batch.on_cancel(None)
            del self._replies[call_id]

    async def _next(self, replies: ItemQueue[Reply | Working]) -> Reply | Working:
        try:
            async with asyncio.timeout(self._predict_timeout):
                return await replies.get()
        except TimeoutError:
            error = GenerationTimeout(
                f"the model function did not answer within option.predict_timeout={self._predict_timeout:g} seconds"
            )
            if not self.died.is_set():  # another call may have reached the limit at the same time
                logger.error("%s; worker %s is killed", error.message, self.process_id)
                others = _lost_error("its worker was killed because another request took too long")
                await self._die(error if self._rolling else others)
            raise error from None

    async def _follow(self) -> None:
        death = await self._worker.follow(self._deliver)
        await self._die(_lost_error(death))

    def _deliver(self, reply: FromWorker) -> None:
        assert isinstance(reply, Reply | Working), reply
        if reply.call_id in self._replies:
            self._replies[reply.call_id].put(reply, final=isinstance(reply, End))

    async def _die(self, error: LmiError) -> None:
        """End the process, and its calls with an error."""
        self.died.set()
        self.fail_calls(error)
        await self._worker.stop()

    def _send(self, message: Load | Handle | Cancel) -> None:
        if not self.died.is_set():
            self._worker.send(message)


def _lost_error(why: str) -> GenerationFailed:
    return GenerationFailed(f"the request was lost: {why}")
