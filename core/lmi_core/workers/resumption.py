"""Requests that outlive their engine: if it dies, they continue in the next one, unnoticed by their readers.

The cause of a death is unknown. So a request that has lost two engines is suspect: suspects continue on trial, without
other requests, for a number of tokens that grows with each lost engine. If they lose another engine, they are tried
again in groups of half the size. A request that loses its third or a later engine while alone has killed it, and ends
with an error.

If a model has several engines, its replicas, a request continues in another one at once. Suspects are tried in the
replica that they lost last: it is empty after its restart, and the other replicas are spared.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import Generic, Protocol, TypeVar

from lmi_core.errors import BackendUnhealthy, GenerationFailed
from lmi_core.workers.isolation import ANY_WORK, Presence, Work
from lmi_core.workers.replica import Replica
from lmi_core.workers.replicas import Replicas

SUSPECT = 2  # a request that has lost this many engines is a suspect
PROBATION = 16  # tokens of a suspect's first trial; each further lost engine multiplies them by this number

T = TypeVar("T")
R = TypeVar("R", bound=Replica)
Item = TypeVar("Item", covariant=True)


class Items(Protocol[Item]):
    """The items of a request in one engine; closing them aborts it there."""

    def __aiter__(self) -> AsyncIterator[Item]: ...

    def __anext__(self) -> Awaitable[Item]: ...

    def aclose(self) -> Awaitable[None]: ...


Begin = Callable[[R, Presence], Items[T]]


class EngineLost(GenerationFailed):
    """The request's engine or its step failed; another engine can continue the request."""

    def __init__(self, message: str, company: int) -> None:
        """`company` is the number of requests that failed at the same time, including this one."""
        super().__init__(message)
        self.company = company


class EngineTime:
    """The time when a call's requests entered their current engine."""

    def __init__(self) -> None:
        self.since = 0.0  # on the event loop's clock; infinite while every request waits for an engine
        self._inside = 0

    def wait(self) -> None:
        """Stop the clock until a request is in an engine, unless one already is."""
        if not self._inside:
            self.since = math.inf

    @contextmanager
    def in_engine(self) -> Iterator[None]:
        """Track one request's time in an engine."""
        self.begin()
        try:
            yield
        finally:
            self.pause()

    def begin(self) -> None:
        """Start counting a request's time."""
        self._inside += 1
        if self._inside == 1:
            self.since = asyncio.get_running_loop().time()

    def pause(self) -> None:
        """Stop counting a request's time."""
        self._inside -= 1
        self.wait()


# Of the call that the current task works on
current_engine_time: ContextVar[EngineTime] = ContextVar("current_engine_time")


class Resumption(Generic[R]):
    """The continuation of requests after the death of their engine."""

    def __init__(self, replicas: Replicas[R], *, enabled: bool = True) -> None:
        self._replicas = replicas
        self._enabled = enabled

    async def stream(
        self, begin: Begin[R, T], note: Callable[[T], int], work: Work = ANY_WORK
    ) -> AsyncGenerator[T, None]:
        """Yield the items of `begin`, which is called again after each loss to continue from the recorded items.

        `begin` gets the engine and the request's presence in it; it ends the presence when the engine is done, even if
        items are still unread, so that slow readers do not delay a trial.
        `note` records an item, and returns the total number of recorded tokens. Closing the generator aborts the
        request.
        """
        history, time = _History[R](), current_engine_time.get(None) or EngineTime()
        while True:
            time.wait()
            replica, presence = await self._enter(history, work)
            try:
                with presence, time.in_engine():
                    on_trial, begins = history.is_suspect, True
                    attempt: Items[T] = begin(replica, presence)
                    if on_trial:
                        attempt = self._on_trial(attempt, note, history, presence)
                    # No wrapping generator, because each adds to the time of every step
                    async with aclosing(attempt) as items:
                        async for item in items:
                            if not on_trial:
                                note(item)
                            if begins:
                                presence.record_start()
                                begins = False
                            yield item
                if not presence.is_paused:
                    return
            except EngineLost as loss:
                if not self._enabled:
                    raise
                history.lose(loss, replica)
            except BackendUnhealthy as error:  # the next engine also died before it accepted the request
                if history.loss is None and not presence.waited:
                    raise
                history.loss = history.loss or EngineLost(f"the request was lost: {error.message}", 1)

    async def _enter(self, history: "_History[R]", work: Work) -> tuple[R, Presence]:
        """Wait for the next engine and a place in it."""
        while True:
            lost = history.lost
            if history.is_suspect:  # it waits before an engine exists, so that it precedes all others
                replica = lost if lost is not None and self._replicas.has(lost) else self._replicas.choose(work)
                presence = await replica.isolation.enter_trial(history.at_most, work)
            else:
                if history.loss is not None:
                    await self._engine(history)
                replica = self._replicas.choose(work)
                presence = await replica.isolation.enter(work)
            if not presence.waited:
                return replica, presence
            try:
                await replica.available()
            except BackendUnhealthy:
                presence.leave()
                await self._engine(history)  # a different one, if there is one
            except BaseException:
                presence.leave()
                raise
            else:
                if presence.trial is not None or not replica.isolation.is_closed:
                    return replica, presence
                presence.leave()  # it was admitted before this engine existed, in which another server tries suspects

    async def _engine(self, history: "_History[R]") -> None:
        """Wait for the next engine. Raise GenerationFailed if there is none."""
        try:
            await self._replicas.available()
        except BackendUnhealthy as error:
            loss = history.loss
            raise GenerationFailed(loss.message if loss else f"the request was lost: {error.message}") from None

    async def _on_trial(
        self,
        items: Items[T],
        note: Callable[[T], int],
        history: "_History[R]",
        presence: Presence,
    ) -> AsyncGenerator[T, None]:
        """Continue for some tokens, which are read even if the client reads none; then continue or pause for others."""
        async with aclosing(items):
            held, loss, ended = await _read(items, note, history.tokens)
            if ended or presence.has_left:
                presence.leave()
            else:
                may_stay = await presence.acquit()
                presence.is_paused = not (may_stay or presence.has_left)  # it may be complete but not yet read
                history.is_suspect = presence.trial is not None and presence.trial.failed
            if not presence.is_paused:
                for item in held:
                    yield item
                if loss is not None:
                    raise loss
                async for item in items:
                    note(item)
                    yield item
                return
        presence.leave()
        for item in held:
            yield item


class _History(Generic[R]):
    """The lost engines of a request, and the way it continues."""

    def __init__(self) -> None:
        self.is_suspect = False
        self.at_most = 1  # the maximum number of requests in its next trial
        self.tokens = 1  # the tokens of its next trial
        self.loss: EngineLost | None = None
        self.lost: R | None = None  # the engine lost then
        self._count = 0

    def lose(self, loss: EngineLost, replica: R) -> None:
        """Record the loss of an engine. Raise GenerationFailed if the request has caused it."""
        self._count += 1
        if self.is_suspect and loss.company == 1:
            reason = f"it is not tried again, because the engine failed {self._count} times while running it"
            raise GenerationFailed(f"{loss.message}; {reason}") from None
        if not self.is_suspect and self._count >= SUSPECT:
            self.tokens *= PROBATION
        self.loss, self.lost = loss, replica
        self.is_suspect = self._count >= SUSPECT
        self.at_most = (loss.company + 1) // 2


async def _read(items: Items[T], note: Callable[[T], int], tokens: int) -> tuple[list[T], EngineLost | None, bool]:
    """Return items with that number of tokens, the error that ended them early, and whether they have ended."""
    held: list[T] = []
    before: int | None = None
    try:
        async for item in items:
            total = note(item)
            before = total if before is None else before
            held.append(item)
            if total - before >= tokens:
                return held, None, False
    except EngineLost as loss:
        return held, loss, True
    return held, None, True
