"""The calls that a model works on, each of which somebody else may end."""

import asyncio
import math
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import TypeVar

from lmi_core.errors import GenerationTimeout

T = TypeVar("T")


class RunningCalls:
    """By request id, which clients choose: several calls may have the same."""

    def __init__(self) -> None:
        self._calls: dict[str, set[RunningCall]] = {}

    def abort(self, request_id: str) -> bool:
        """Ends every call of that id; whether there was one."""
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
    """What one task waits for step by step. Only its waits are cut short: while a step is being sent, they are not."""

    def __init__(self, predict_timeout: float) -> None:
        self.aborted = False
        self._limit = predict_timeout
        self._cut = asyncio.timeout(None)
        self._is_cut = False
        self._waiting = False
        self._since = math.inf  # when the wait began, as far as it counts

    def abort(self) -> None:
        self.aborted = True
        self._cut_short()

    def wait_for_place(self) -> None:
        """Note that the task waits for a place, and not for the engine: the time does not count."""
        self._since = math.inf

    def wait_for_step(self) -> None:
        self._since = asyncio.get_running_loop().time()

    async def until_aborted(self, steps: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Yield the steps until they are over or the call is aborted. Raise GenerationTimeout."""
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
                    f"no generation step came within option.predict_timeout={self._limit} seconds"
                ) from None
        finally:
            self._waiting = False
            self._watch.cancel()

    def _look(self) -> None:
        """Look how long the call waits, and again when that would be too long: cheaper than a timer for each step."""
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
