"""Isolation of requests in an engine: all together, or a few on trial to find the one that kills it."""

import asyncio
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from lmi_core.workers.trial_turn import LOOK_SECONDS, TrialTurn

DECODED = 8  # tokens that cost an engine as much as one of a prompt: many sequences decode together, few to the end
GATHER_SECONDS = 0.1  # before a trial, in which the requests that lost the same engine arrive


class Work(NamedTuple):
    """The work that a request causes in an engine, measured in prompt tokens."""

    prefill: int = 0  # tokens until its first result
    rest: int = 0  # tokens until it ends
    sequences: int = 1
    prompt: Sequence[int] = ()
    kind: Hashable = None  # prompts of different kinds, such as adapters, share no prefix

    @classmethod
    def generation(cls, prompt: Sequence[int], max_new_tokens: int, sequences: int, kind: Hashable) -> Self:
        """Return the work for a generation of at most this many tokens."""
        return cls(len(prompt), max_new_tokens * sequences // DECODED, sequences, prompt, kind)


ANY_WORK = Work()


class Presence:
    """A request's presence in the engine, which ends with a `with` statement."""

    __slots__ = ("_isolation", "has_left", "is_paused", "prefill", "sequences", "tokens", "trial", "waited")

    def __init__(
        self, isolation: "Isolation", work: Work, trial: "Trial | None" = None, *, waited: bool = False
    ) -> None:
        self._isolation = isolation
        self.tokens = work.prefill + work.rest
        self.sequences = work.sequences
        self.prefill = work.prefill
        self.trial = trial
        self.waited = waited  # the time it waited for admission
        self.has_left = False  # for example, when the engine has completed all of it
        self.is_paused = False  # it left the engine early, to continue later

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Leave the engine, once; do nothing if `clear` has ended the presence."""
        if not self.has_left:
            self.has_left = True
            self._isolation.leave(self)

    def record_start(self) -> None:
        """Record the first result, which means that the prompt has been processed."""
        self._isolation.subtract_prompt(self)

    async def acquit(self) -> bool:
        """Wait for the end of the trial after passing it, and return whether the request may stay in the engine."""
        assert self.trial is not None
        self._isolation.pass_trial(self)
        await self.trial.over.wait()
        return self.trial.may_stay


@dataclass(eq=False)
class Trial:
    """A trial of suspects in the engine, without other requests."""

    untested: set[Presence] = field(default_factory=set)
    may_stay: bool = True  # after the trial; otherwise, others are tried next
    failed: bool = False  # the engine died during the trial
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class Waiting:
    """A waiting request; a suspect waits for a trial with at most this many requests."""

    work: Work
    at_most: int = 0
    admitted: asyncio.Future[Presence] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Isolation:
    """The requests in the engine. Suspects go first, in small groups; then all others run together."""

    def __init__(self) -> None:
        self.tokens = self.sequences = 0  # of the requests inside; tokens that are yet to be read, see Work
        self.entries = 0  # of requests so far
        self.turn: TrialTurn | None = None  # None: no other server has the engine; set by `share`
        self._taking_turn: asyncio.Task[None] | None = None
        self._looking: asyncio.TimerHandle | None = None  # checks for the end of another server's trial
        self._inside: set[Presence] = set()
        self._without_result: dict[Presence, float] = {}  # of those inside, since when, the longest first
        self._trial: Trial | None = None  # of all requests inside
        self._suspects: deque[Waiting] = deque()
        self._others: deque[Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    def share(self, turn: TrialTurn) -> None:
        """Take turns with other servers that have requests in the engine."""
        self.turn = turn
        turn.on_open = self._admit

    @property
    def inside(self) -> int:
        """The number of requests in the engine."""
        return len(self._inside)

    @property
    def queue_time(self) -> float:
        """The time, in seconds, for which a request inside has waited for its first result; the longest of all."""
        since = next(iter(self._without_result.values()), None)
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    @property
    def is_trying(self) -> bool:
        """Whether other requests wait while suspects are tried, or are about to be, here or by another server."""
        return self._trial is not None or bool(self._suspects) or bool(self._others) or self.is_closed

    @property
    def is_closed(self) -> bool:
        """Whether another server tries suspects, or may do so."""
        return self.turn is not None and self.turn.is_closed

    async def enter(self, work: Work = ANY_WORK) -> Presence:
        """Join the other requests once no request is on trial or waits for a trial."""
        if not self.is_trying and self._may_enter():
            return self._enter(Presence(self, work))
        self._others.append(waiting := Waiting(work))
        self._admit()
        return await self._admission(waiting.admitted)

    async def enter_trial(self, at_most: int, work: Work = ANY_WORK) -> Presence:
        """Wait until the engine is empty, then continue in it with at most this many requests, all of them suspects."""
        self._suspects.append(suspect := Waiting(work, at_most))
        self._admit()
        return await self._admission(suspect.admitted)

    async def wait_empty(self) -> None:
        """Wait until no request is in the engine."""
        await self._empty.wait()

    def leave(self, presence: Presence) -> None:
        """End a presence; do nothing if `clear` has ended it."""
        if presence in self._inside:
            self._inside.remove(presence)
            self._without_result.pop(presence, None)
            self.tokens -= presence.tokens
            self.sequences -= presence.sequences
            if not self._inside:
                self._on_empty()
        self.pass_trial(presence)
        self._admit()

    def subtract_prompt(self, presence: Presence) -> None:
        """Subtract a request's prompt from the remaining work."""
        self._without_result.pop(presence, None)
        if presence in self._inside:
            self.tokens -= presence.prefill
            presence.tokens -= presence.prefill
            presence.prefill = 0

    def pass_trial(self, presence: Presence) -> None:
        """Record that a request has passed or left the trial; the last one ends it."""
        trial = presence.trial
        if trial is None or trial is not self._trial:
            return
        trial.untested.discard(presence)
        if not trial.untested:
            trial.may_stay = not self._suspects
            self._end_trial()
            self._admit()

    def clear(self) -> None:
        """End every presence, because the engine has died. A request whose client is slow may notice this late."""
        self._inside.clear()
        self._without_result.clear()
        self.tokens = self.sequences = 0
        if self.turn is not None:
            self.turn.lose()
        self._on_empty()
        if self._trial is not None:
            self._trial.failed = True
            self._end_trial()
        self._admit_later()

    def _end_trial(self) -> None:
        assert self._trial is not None
        self._trial.over.set()
        self._trial = None
        if self.turn is not None:
            self.turn.give_back(stays=bool(self._inside))

    def _on_empty(self) -> None:
        self._empty.set()
        if self.turn is not None and self._trial is None:
            self.turn.leave()

    def _may_enter(self) -> bool:
        return self.turn is None or self.turn.enter()

    async def _admission(self, admitted: "asyncio.Future[Presence]") -> Presence:
        try:
            return await admitted
        except asyncio.CancelledError:
            if not admitted.cancelled():  # just admitted
                self.leave(admitted.result())
            self._admit()
            raise

    def _admit(self) -> None:
        """Admit all others, or start the next trial."""
        if self._suspects:
            self._suspects = deque(each for each in self._suspects if not each.admitted.cancelled())
        if self._trial is not None or self._timer is not None:
            return
        if self._suspects:
            if not self._inside:
                self._admit_later()
            return
        if self._taking_turn is not None:  # on behalf of suspects that have left
            self._taking_turn.cancel()
            self._taking_turn = None
        while self._others:
            waiting = self._others[0]
            if not waiting.admitted.cancelled() and not self._may_enter():
                self._look_later()
                return
            self._others.popleft()
            self._end_wait(waiting)

    def _look_later(self) -> None:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._looking = None
        if self.turn is not None:
            self.turn.look()
        self._admit()

    def _admit_later(self) -> None:
        if self._timer is None and self._taking_turn is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._admit_now)

    def _admit_now(self) -> None:
        self._timer = None
        if not self._may_try:
            self._admit()
        elif self.turn is None:
            self._begin_trial()
        else:
            self._taking_turn = asyncio.create_task(self._try_in_turn(self.turn))

    @property
    def _may_try(self) -> bool:
        return bool(self._suspects) and not self._inside and self._trial is None

    async def _try_in_turn(self, turn: TrialTurn) -> None:
        await turn.take()
        self._taking_turn = None
        if self._may_try:
            self._begin_trial()
        if self._trial is None:
            turn.give_back(stays=bool(self._inside))
            self._admit()

    def _begin_trial(self) -> None:
        """Admit as many waiting suspects as all of them allow together."""
        chosen: list[Waiting] = []
        while self._suspects and len(chosen) < min(each.at_most for each in (*chosen, self._suspects[0])):
            chosen.append(self._suspects.popleft())
        self._trial = Trial()
        for each in chosen:
            self._end_wait(each, self._trial)
        if not self._trial.untested:  # all have left
            self._trial = None
            self._admit()

    def _end_wait(self, waiting: Waiting, trial: Trial | None = None) -> None:
        if waiting.admitted.cancelled():  # its task has not been notified yet
            return
        presence = self._enter(Presence(self, waiting.work, trial, waited=True))
        if trial is not None:
            trial.untested.add(presence)
        waiting.admitted.set_result(presence)

    def _enter(self, presence: Presence) -> Presence:
        self._inside.add(presence)
        self._without_result[presence] = asyncio.get_running_loop().time()
        self.tokens += presence.tokens
        self.sequences += presence.sequences
        self.entries += 1
        self._empty.clear()
        return presence
