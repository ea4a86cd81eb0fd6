"""The calls that a model works on, each of which somebody else may end."""

import asyncio
import math
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import TypeVar

from lmi_core.errors import GenerationTimeout

T = TypeVar("T")


class RunningCalls:
    """The running calls by request id, of which several may share one, as clients choose them."""

    def __init__(self) -> None:
        self._calls: dict[str, set[RunningCall]] = {}

    def abort(self, request_id: str) -> bool:
        """Abort every call of that id, and return whether there was one."""
        calls = self._calls.get(request_id, set())
        for call in calls:
            call.abort()
        return bool(calls)

    @contextmanager
    def call(self, request_id: str, predict_timeout: float) -> "Iterator[RunningCall]":
        """Begin a call that can be aborted from here on."""
        call = RunningCall(predict_timeout)
        self._calls.setdefault(request_id, set()).add(call)
        try:
            yield call
        finally:
            calls = self._calls[request_id]
            calls.discard(call)
            if not calls:
                del self._calls[request_id]


class RunningCall:
    """One task's waits for steps, which an abort or a timeout interrupts, but never the sending of a step."""

    def __init__(self, predict_timeout: float) -> None:
        self.aborted = False
        self._limit = predict_timeout
        self._cut = asyncio.timeout(None)
        self._is_cut = False
        self._waiting = False
        self._since = math.inf  # when the counted wait began

    def abort(self) -> None:
        self.aborted = True
        self._cut_short()

    def wait_for_place(self) -> None:
        """Exclude the wait for a place in a batch from the timeout."""
        self._since = math.inf

    def wait_for_step(self) -> None:
        self._since = asyncio.get_running_loop().time()

    async def until_aborted(self, steps: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Yield the steps until the end or an abort. Raise GenerationTimeout where one takes too long."""
        loop = asyncio.get_running_loop()
        now = loop.time
        self._watch = loop.call_later(self._limit, self._look)
        try:
            async with aclosing(steps), self._cut:
                self._since, self._waiting = now(), True
                async for step in steps:
                    self._waiting = False
                    if self._is_cut:  # too late: the step is here
                        self._cut.reschedule(None)
                        self._is_cut = False
                    yield step
                    if self.aborted:
                        return
                    self._since, self._waiting = now(), True
        except TimeoutError:
            if not self._cut.expired():  # the engine's own
                raise
            if not self.aborted:
                raise GenerationTimeout(
                    f"no generation step was received within option.predict_timeout={self._limit} seconds"
                ) from None
        finally:
            self._waiting = False
            self._watch.cancel()

    def _look(self) -> None:
        """Check the wait, and again when it would time out, which is cheaper than a timer per step."""
        loop = asyncio.get_running_loop()
        waited = loop.time() - self._since if self._waiting and self._since != math.inf else 0.0
        if waited >= self._limit:
            self._cut_short()
            waited = 0.0
        self._watch = loop.call_later(self._limit - waited, self._look)

    def _cut_short(self) -> None:
        if self._waiting and not self._is_cut:  # once is enough: a timeout that is passing cannot be changed
            self._is_cut = True
            self._cut.reschedule(0)
