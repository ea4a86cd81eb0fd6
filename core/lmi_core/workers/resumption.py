"""Requests that outlive their engine: if it dies, they continue in the next one, unnoticed by their readers.

The cause of a death is unknown. So a request that has lost two engines is suspect: it continues alone, for a number of
tokens that grows with each lost engine, while others wait. A request that loses its second or a later engine while
alone has killed it, and ends with an error.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from lmi_core.errors import BackendUnhealthy, GenerationFailed
from lmi_core.workers.isolation import Isolation, Presence

SUSPECT = 2  # engines that a request has lost
MAX_LOST = 6  # after which a request ends, whoever was with it
PROBATION = 16  # tokens that a suspect goes on for alone; as many times more with each further engine that it loses

T = TypeVar("T")
Begin = Callable[[Presence], AsyncGenerator[T, None]]


class EngineLost(GenerationFailed):
    """The request's engine or its step failed; another engine can continue the request."""

    def __init__(self, message: str, *, alone: bool) -> None:
        """`alone`: no other request was in the engine."""
        super().__init__(message)
        self.alone = alone


class Resumption:
    """The continuation of an engine's requests after its death."""

    def __init__(self, available: Callable[[], Awaitable[None]], *, enabled: bool = True) -> None:
        """`available` waits until an engine accepts requests, and raises BackendUnhealthy if none will."""
        self._available = available
        self._enabled = enabled
        self._isolation = Isolation()

    @property
    def in_engine(self) -> int:
        """The number of requests in the engine."""
        return self._isolation.inside

    def engine_died(self) -> None:
        """Record that the engine has no requests any more; called before the requests get the error."""
        self._isolation.clear()

    async def stream(self, begin: Begin[T], note: Callable[[T], int]) -> AsyncGenerator[T, None]:
        """Yield what `begin` yields, which is called again after each loss to go on from what was noted.

        `begin` gets the request's presence in the engine, to end it where the engine is done before the items are read:
        whoever reads them slowly must not keep those waiting that want to be alone.
        `note` notes an item, and returns how many tokens were noted in all. Closing the generator aborts the request.
        """
        lost = 0
        while True:
            alone = lost >= SUSPECT
            try:
                with await (self._isolation.enter_alone() if alone else self._isolation.enter()) as presence:
                    attempt = self._on_probation(begin, note, lost, presence) if alone else begin(presence)
                    async with aclosing(attempt) as items:  # no generator around it: each costs every step
                        async for item in items:
                            if not alone:
                                note(item)
                            yield item
                return
            except EngineLost as loss:
                lost += 1
                self._check(loss, lost)
                if lost < SUSPECT:  # a suspect queues before there is an engine, so that it is ahead of all others
                    await self._engine(loss)
            except BackendUnhealthy as error:  # the next engine died too, before it took the request
                if not lost:
                    raise
                await self._engine(EngineLost(f"the request was lost: {error.message}", alone=False))

    def _check(self, loss: EngineLost, lost: int) -> None:
        """Raise an error if the lost request must not be tried again."""
        if not self._enabled:
            raise loss
        if (lost >= SUSPECT and loss.alone) or lost >= MAX_LOST:
            reason = f"it is not tried again, as the engine failed {lost} times under it"
            raise GenerationFailed(f"{loss.message}; {reason}") from None

    async def _on_probation(
        self, begin: Begin[T], note: Callable[[T], int], lost: int, presence: Presence
    ) -> AsyncGenerator[T, None]:
        """Continue alone for some tokens, which are read even if the client reads none, then with all others."""
        await self._engine(None)
        async with aclosing(begin(presence)) as items:
            held, loss = await _read(items, note, PROBATION ** (lost - 1))
            if loss is not None:
                presence.leave()
            presence.share()
            for item in held:
                yield item
            if loss is not None:
                raise loss
            async for item in items:
                note(item)
                yield item

    async def _engine(self, loss: EngineLost | None) -> None:
        """Wait for the next engine. Raise the loss if there is none."""
        try:
            await self._available()
        except BackendUnhealthy as error:
            raise loss or GenerationFailed(f"the request was lost: {error.message}") from None


async def _read(
    items: AsyncGenerator[T, None], note: Callable[[T], int], tokens: int
) -> tuple[list[T], EngineLost | None]:
    """Return items with that number of tokens or up to the end, and the error that ended them early."""
    held: list[T] = []
    before: int | None = None
    try:
        async for item in items:
            total = note(item)
            before = total if before is None else before
            held.append(item)
            if total - before >= tokens:
                break
    except EngineLost as loss:
        return held, loss
    return held, None
