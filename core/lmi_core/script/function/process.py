"""The server's side of one process that runs a model function."""

import asyncio
import itertools
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from lmi_core.errors import BackendUnhealthy, GenerationTimeout, LmiError
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
from lmi_core.workers.client import WorkerClient
from lmi_core.workers.conversation import Conversation
from lmi_core.workers.item_queue import ItemQueue
from lmi_core.workers.local_process import LocalProcess
from lmi_core.workers.resumption import EngineLost

logger = logging.getLogger(__name__)

TARGET = "lmi_core.script.function.worker:run"
WHAT = "the model function's worker"


class FunctionProcess(WorkerClient[FromWorker, int, ItemQueue[Reply | Working]]):
    """A process that runs a model function; it is killed if a call takes too long, and replaced when it dies."""

    def __init__(
        self,
        load: Load,
        predict_timeout: float,
        retry_threshold: int,
        python: str | None,
        on_change: Callable[[Loaded | None], None],
    ) -> None:
        """`python` is the interpreter, by default this one; `on_change` is called at each start and death."""
        endpoint = partial(LocalProcess, TARGET, python=python)
        super().__init__(endpoint, decode_from_worker, retry_threshold, heartbeat_timeout=0, what=WHAT)
        self._load = load
        self._predict_timeout = predict_timeout
        self._on_change = on_change
        self._ids = itertools.count(1)
        self._is_killed = False  # its end may not have been noticed yet
        self._max_calls = 1
        self._places = asyncio.Semaphore()  # for calls; of the size `max_calls` once it is known

    @property
    def is_free(self) -> bool:
        """Whether a further call would begin at once."""
        return self.is_available and not self._is_killed and self.isolation.inside < self._max_calls

    def fail_calls(self, error: LmiError) -> None:
        """End the running calls with an error, whether or not the function ends."""
        for replies in self._requests.values():
            replies.fail(error)

    async def run(self, batch: FunctionBatch) -> None:
        """Let the function answer a batch, and return when it is done, even if every request is cancelled."""
        async with self._places:
            try:
                await self._run(batch)
            except LmiError as error:
                batch.fail(error)
            finally:
                batch.on_cancel(None)

    async def _run(self, batch: FunctionBatch) -> None:
        call_id, replies = next(self._ids), ItemQueue[Reply | Working]()

        def cancel() -> None:
            with suppress(BackendUnhealthy):
                self._send(Cancel(call_id))

        with self._in_worker(call_id, replies, Handle(call_id, batch.function, batch.requests), Cancel(call_id)):
            batch.on_cancel(cancel)
            batch.begin()
            while not isinstance(reply := await self._next(replies), End):
                if not isinstance(reply, Working):
                    batch.deliver(reply)
            batch.on_cancel(None)
            batch.deliver(reply)
            self.restarts.reset_count()

    async def _next(self, replies: ItemQueue[Reply | Working]) -> Reply | Working:
        try:
            async with asyncio.timeout(self._predict_timeout):
                return await replies.get()
        except TimeoutError:
            error = GenerationTimeout(
                f"the model function did not answer within option.predict_timeout={self._predict_timeout:g} seconds"
            )
            if not replies.complete:  # otherwise, another call has reached the limit at the same time
                self._kill(error)
            raise error from None

    def _kill(self, error: LmiError) -> None:
        """Kill the process because of a call, on which all others depend in a rolling batch."""
        logger.error("%s; worker %s is killed", error.message, self.process_id)
        others = EngineLost("the request was lost: its worker was killed because another request took too long", 1)
        self.fail_calls(error if self._load.rolling_batch_size is not None else others)
        self._is_killed = True
        self._supervisor.running.endpoint.kill()

    async def _load_message(self, worker: Conversation[FromWorker]) -> Load:
        return self._load

    def _on_loaded(self, answer: FromWorker) -> None:
        assert isinstance(answer, Loaded), answer
        self._is_killed = False
        max_calls = sys.maxsize if answer.max_calls is None else answer.max_calls
        if max_calls != self._max_calls:
            self._max_calls, self._places = max_calls, asyncio.Semaphore(max_calls)
        self._on_change(answer)

    def record_death(self) -> None:
        super().record_death()
        self._on_change(None)

    def _deliver(self, message: FromWorker) -> None:
        assert isinstance(message, Reply | Working), message
        if message.call_id in self._requests:
            self._requests[message.call_id].put(message, final=isinstance(message, End))
