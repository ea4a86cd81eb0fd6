"""The replicas of a model: their start and end, their number, and the choice of one for each request."""

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from lmi_core.errors import BackendUnhealthy
from lmi_core.logs.logs import log_model, logging_of
from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.workers.isolation import Work
from lmi_core.workers.replica import Replica
from lmi_core.workers.routing import Router

logger = logging.getLogger(__name__)

UNLIMITED = sys.maxsize
MAX_QUEUE_TIME = 2.0  # seconds until a request's first result, after which others should go elsewhere
DRAIN_SECONDS = 60.0  # for the requests of a replica that is being stopped; then they continue elsewhere, if they can

R = TypeVar("R", bound=Replica)


class ReplicaCount(NamedTuple):
    """The number of replicas of a model."""

    minimum: int = 1
    maximum: int = 1  # reached while requests wait in all replicas


ONE = ReplicaCount()


class Replicas(Generic[R]):
    """The engines of one model, each of which can serve any request."""

    def __init__(
        self,
        create: Callable[[int], R],
        count: ReplicaCount = ONE,
        max_sequences: int = 0,
        max_idle_time: float = 60,
        first: int = 0,
        groups: int = 1,
    ) -> None:
        """`create` creates a replica, given its number from 0; those `groups` numbers apart are on the same devices.

        A replica with `max_sequences` is full; while requests wait in all replicas, another one is started, up to the
        maximum.
        Replicas beyond the minimum end after `max_idle_time` seconds without a request. For `first` see Router.
        """
        self.members: list[R] = []
        self.count = count
        self.drain_seconds = DRAIN_SECONDS
        self.limit = UNLIMITED  # of replicas, while another version of the model has some of their devices
        self.former: Replicas[Any] | None = None  # the other version's, with whose numbers its own must differ
        self._log_model: str | None = None
        self.on_change: Callable[[], None] = lambda: None  # called after replicas were added or removed
        self._changed = asyncio.Event()  # replaced whenever it is set, which is when replicas were added or removed
        self._create = create
        self._max_sequences = max_sequences
        self.max_idle_time = max_idle_time
        self._router = Router[R](first, max_sequences)
        self._groups = groups
        self._numbers: dict[R, int] = {}  # of members and of replicas that are starting
        self.changing = asyncio.Lock()  # held while replicas are started, stopped, or changed together
        self._growing: asyncio.Task[None] | None = None
        self._shrinking: asyncio.Task[None] | None = None
        self._ended_ones = EngineFigures()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def first(self) -> R:
        """A replica that describes the model, which is the same in all of them."""
        return next((each for each in self.members if each.is_available), self.members[0])

    def number(self, replica: R) -> int:
        """Return the number that the replica was created with."""
        return self._numbers[replica]

    async def start(self, former: "Replicas[Any] | None" = None) -> None:
        """Load the model into the minimum number of replicas. Raise ConfigurationError if that fails for one.

        If the replicas of a former version are given, load it into only one, on devices that these have left.
        """
        self._log_model = log_model.get()
        if former is not None:
            self.limit, self.former = 1, former
        await self._add(1)  # alone, because it may download the model, and so that a fault is reported once
        await self._add(self._least - 1)

    async def stop(self) -> None:
        """End all replicas. Safe to call repeatedly, at any time."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(each.stop() for each in list(self._numbers)))

    async def scale(self, count: ReplicaCount) -> None:
        """Change the number of replicas. Raise LmiError if one cannot be started; the others then stay."""
        self.count = count
        async with self.changing:
            if (missing := self._least - len(self.members)) > 0:
                await self._add(missing)
            idlest = sorted(self.members, key=lambda each: (each.is_available, each.isolation.tokens))
            await asyncio.gather(*(self._remove(each) for each in idlest[: -self._most]))
        if self._shrinking is not None:
            self._shrinking.cancel()  # it waits for what may have been another time
        self._shrinking = self._begin(self._shrink())

    async def limit_to(self, limit: int) -> None:
        """Run at most this many replicas for now. Raise LmiError if a missing one cannot be started."""
        self.limit = limit
        await self.scale(self.count)

    def choose(self, work: Work) -> R:
        """Return the replica for a request; an unavailable one only if all are unavailable."""
        chosen = self.members[0] if len(self.members) == 1 else self._router.choose(self.members, work)
        if len(self.members) > 1 and not _accepts(chosen):
            accepting = [each for each in self.members if _accepts(each)]
            accepting = accepting or [each for each in self.members if each.is_available]
            chosen = self._router.choose(accepting, work) if accepting else chosen
        self.grow_if_full()
        return chosen

    def grow_if_full(self) -> None:
        """Start another replica if a request would wait in every one, and there may be more."""
        is_growing = self._growing is not None and not self._growing.done()
        if len(self.members) < self._most and self._need_help() and not is_growing:
            self._growing = self._begin(self._grow())

    async def drop_given_up(self) -> None:
        """Drop replicas that are not restarted any longer, unless all are, so that others may take their places."""
        if not any(map(self.has, self.members)) or self.changing.locked():
            return
        async with self.changing:
            for each in [each for each in self.members if not self.has(each)]:
                await self._remove(each)

    def has(self, replica: R) -> bool:
        """Return whether requests may go to this replica, now or once it is restarted."""
        return replica in self.members and not replica.restarts.given_up.is_set()

    async def available(self) -> None:
        """Wait until a replica accepts requests. Raise BackendUnhealthy if no replica is restarted any longer."""
        if any(each.is_available for each in self.members):
            return
        waits = [asyncio.ensure_future(each.available()) for each in self.members]
        refusal = BackendUnhealthy("the engine was stopped")
        try:
            for available in asyncio.as_completed(waits):
                try:
                    await available
                except BackendUnhealthy as error:
                    refusal = error
                else:
                    return
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        raise refusal

    def check_health(self) -> None:
        """Raise BackendUnhealthy while no replica accepts requests."""
        if self.members:
            self.first.check_health()
        else:
            raise BackendUnhealthy("the engine is starting")

    async def wait_given_up(self) -> str:
        """Wait until no replica is restarted any longer, and return the reason."""
        while living := [each for each in self.members if self.has(each)]:
            events = [self._changed, *(each.restarts.given_up for each in living)]
            waits = [asyncio.ensure_future(event.wait()) for event in events]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waits:
                    each.cancel()
        return self.members[0].restarts.reason

    @property
    def figures(self) -> EngineFigures:
        """The combined figures of all replicas, with the counts of those that have ended."""
        found = EngineFigures.together([each.figures for each in self.members])
        found = replace(found.after(self._ended_ones), restarts=found.restarts + self._ended_ones.restarts)
        if self.count.maximum == 1:
            return found
        return replace(
            found,
            workers=sum(each.is_available for each in self.members),
            sequences={self.number(each) + 1: each.isolation.sequences for each in self.members},
        )

    @property
    def process_ids(self) -> Collection[int]:
        return [process_id for each in self.members for process_id in each.process_ids]

    @property
    def _least(self) -> int:
        return min(self.count.minimum, self.limit)

    @property
    def _most(self) -> int:
        return min(self.count.maximum, self.limit)

    def _need_help(self) -> bool:
        """Return whether a request would wait in every replica."""
        inside = [each.isolation for each in self.members]
        return all(each.sequences >= self._max_sequences or each.queue_time > MAX_QUEUE_TIME for each in inside)

    async def _grow(self) -> None:
        async with self.changing:
            if len(self.members) >= self._most or not self._need_help():
                return
            logger.info("requests wait in all %d replicas: another one is started", len(self.members))
            await self._add(1)
        self._begin_shrinking()

    def _begin_shrinking(self) -> None:
        if self._shrinking is None or self._shrinking.done():
            self._shrinking = self._begin(self._shrink())

    async def _shrink(self) -> None:
        """End replicas beyond the minimum that have been idle for some time; the minimum is of those that work."""
        entries = dict[R, int]()
        while len(self.members) > self.count.minimum:
            await asyncio.sleep(self.max_idle_time)
            async with self.changing:
                working = [each for each in self.members if each.is_available]
                for each in reversed(working[self.count.minimum :]):
                    if not each.isolation.inside and entries.get(each) == each.isolation.entries:
                        logger.info("an idle replica is being stopped")
                        await self._remove(each)
                        break
            entries = {each: each.isolation.entries for each in self.members}

    async def _add(self, count: int) -> None:
        """Start replicas. Raise ConfigurationError if one cannot be started; the others stay."""
        results = await asyncio.gather(*(self._start_one() for _ in range(count)), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _free_number(self) -> int:
        """Return the lowest free number on the devices with the fewest replicas of this and the former version."""
        taken = {*self._numbers.values(), *(() if self.former is None else self.former._numbers.values())}
        held = Counter(number % self._groups for number in taken)
        free = (number for number in range(len(taken) + self._groups) if number not in taken)
        return min(free, key=lambda number: held[number % self._groups])

    async def _start_one(self) -> None:
        number = self._free_number()
        replica = self._create(number)
        self._numbers[replica] = number
        replica.on_death = partial(self._router.forget, replica)
        try:
            with logging_of(self._log_model):  # also if a request, or a route, starts it
                await replica.start()
        except BaseException:
            await replica.stop()
            del self._numbers[replica]
            raise
        self.members.append(replica)
        self._notify()

    async def _remove(self, replica: R) -> None:
        """End a replica after its requests; those that take too long continue in another one."""
        self.members.remove(replica)
        self._router.forget(replica)
        self._notify()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(replica.isolation.wait_empty(), self.drain_seconds)
        except asyncio.CancelledError:
            self.members.append(replica)
            self._notify()
            raise
        before = self._ended_ones
        figures = replica.figures.after(before)
        self._ended_ones = replace(figures, restarts=figures.restarts + before.restarts)
        await replica.stop()
        del self._numbers[replica]

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self.on_change()

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)
        return task

    def _on_task_end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            logger.error("the number of replicas stays at %d: %s", len(self.members), error, exc_info=error)
        elif task is self._growing:
            self.on_change()  # another one may be needed


def _accepts(replica: Replica) -> bool:
    return replica.is_available and not replica.isolation.is_trying
