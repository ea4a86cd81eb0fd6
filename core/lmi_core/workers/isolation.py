"""Isolation of requests in an engine: all together, or a few on trial, which is how the one that kills it is found."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Self

GATHER_SECONDS = 0.1  # before a trial, in which the requests that lost the same engine arrive


class Presence:
    """A request's presence in the engine, which ends with a `with` statement."""

    __slots__ = ("_isolation", "has_left", "is_paused", "trial", "waited")

    def __init__(self, isolation: "Isolation", trial: "Trial | None" = None, *, waited: bool = False) -> None:
        self._isolation = isolation
        self.trial = trial
        self.waited = waited  # for its admission
        self.has_left = False  # as when the engine has done all of it
        self.is_paused = False  # it left the engine before its end, to go on later

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Leave the engine; do nothing where `clear` has ended the presence."""
        self.has_left = True
        self._isolation.leave(self)

    async def acquit(self) -> bool:
        """Pass the trial, wait for its end, and return whether the request may stay in the engine."""
        assert self.trial is not None
        self._isolation.pass_trial(self)
        await self.trial.over.wait()
        return self.trial.may_stay


@dataclass(eq=False)
class Trial:
    """Suspects in the engine, without any other request."""

    untested: set[Presence] = field(default_factory=set)
    may_stay: bool = True  # after the trial; otherwise others are to be tried
    failed: bool = False  # the engine died
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class Suspect:
    """A request that waits for a trial with at most so many in it."""

    at_most: int
    admitted: asyncio.Future[Presence]


class Isolation:
    """The requests in the engine. Suspects go first, in small groups without company; then all others together."""

    def __init__(self) -> None:
        self._inside: set[Presence] = set()
        self._trial: Trial | None = None  # of all that are inside
        self._suspects: deque[Suspect] = deque()
        self._others: deque[asyncio.Future[Presence]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def inside(self) -> int:
        """The number of requests in the engine."""
        return len(self._inside)

    async def enter(self) -> Presence:
        """Join the others, when no request is on trial or waits to be."""
        if self._trial is None and not self._suspects:
            self._inside.add(presence := Presence(self))
            return presence
        self._others.append(admitted := asyncio.get_running_loop().create_future())
        return await self._admission(admitted)

    async def enter_trial(self, at_most: int) -> Presence:
        """Wait until the engine is empty, and go on in it with at most so many, all of them suspects."""
        self._suspects.append(suspect := Suspect(at_most, asyncio.get_running_loop().create_future()))
        self._admit()
        return await self._admission(suspect.admitted)

    def leave(self, presence: Presence) -> None:
        """End a presence; do nothing where `clear` has ended it."""
        self._inside.discard(presence)
        self.pass_trial(presence)
        self._admit()

    def pass_trial(self, presence: Presence) -> None:
        """Record that a request on trial has worked, or has left; the last one ends the trial."""
        trial = presence.trial
        if trial is None or trial is not self._trial:
            return
        trial.untested.discard(presence)
        if not trial.untested:
            trial.may_stay = not self._suspects
            self._end_trial()
            self._admit()

    def clear(self) -> None:
        """End every presence, as the engine is gone. A request whose client is slow may learn of it late."""
        self._inside.clear()
        if self._trial is not None:
            self._trial.failed = True
            self._end_trial()
        self._admit_later()

    def _end_trial(self) -> None:
        assert self._trial is not None
        self._trial.over.set()
        self._trial = None

    async def _admission(self, admitted: "asyncio.Future[Presence]") -> Presence:
        try:
            return await admitted
        except asyncio.CancelledError:
            if not admitted.cancelled():  # admitted just now
                self.leave(admitted.result())
            self._admit()
            raise

    def _admit(self) -> None:
        """Admit all others, or see to the next trial."""
        self._suspects = deque(each for each in self._suspects if not each.admitted.cancelled())
        if self._trial is not None or self._timer is not None:
            return
        if self._suspects:
            if not self._inside:
                self._admit_later()
            return
        while self._others:
            self._let_in(self._others.popleft())

    def _admit_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._admit_now)

    def _admit_now(self) -> None:
        self._timer = None
        if self._suspects and not self._inside and self._trial is None:
            self._begin_trial()
        else:
            self._admit()

    def _begin_trial(self) -> None:
        """Admit as many waiting suspects as all of them allow."""
        chosen: list[Suspect] = []
        while self._suspects and len(chosen) < min(each.at_most for each in (*chosen, self._suspects[0])):
            chosen.append(self._suspects.popleft())
        self._trial = Trial()
        for each in chosen:
            self._let_in(each.admitted, self._trial)
        if not self._trial.untested:  # all have left
            self._trial = None
            self._admit()

    def _let_in(self, admitted: "asyncio.Future[Presence]", trial: Trial | None = None) -> None:
        if admitted.cancelled():  # and its task does not know it yet
            return
        self._inside.add(presence := Presence(self, trial, waited=True))
        if trial is not None:
            trial.untested.add(presence)
        admitted.set_result(presence)
