"""Isolation of requests in an engine, together and on trial, and their order."""

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Coroutine
from functools import partial
from typing import Any

import msgspec
import pytest

from lmi_core.errors import BackendUnhealthy
from lmi_core.workers.isolation import Isolation, Presence
from lmi_core.workers.messages import Alive, encode
from lmi_core.workers.trial_turn import LOOK_SECONDS, TrialTurn, Turn, TurnKeeper
from tests.virtual_time import in_virtual_time


async def settle() -> None:
    await asyncio.sleep(1)  # of virtual time, in which whatever may enter does


def start(waiting: Coroutine[Any, Any, Presence]) -> asyncio.Task[Presence]:
    return asyncio.create_task(waiting)


def entered(*waiting: asyncio.Task[Presence]) -> list[bool]:
    return [each.done() for each in waiting]


@in_virtual_time
async def test_many_are_in_it_together() -> None:
    isolation = Isolation()
    presences = [await isolation.enter() for _ in range(3)]
    assert isolation.inside == 3
    for presence in presences:
        isolation.leave(presence)
        isolation.leave(presence)
    assert isolation.inside == 0


@in_virtual_time
async def test_trials_wait_for_others_and_go_before_new_ones() -> None:
    isolation = Isolation()
    first = await isolation.enter()
    suspects = [start(isolation.enter_trial(at_most)) for at_most in (3, 2, 2, 1)]
    later = start(isolation.enter())
    await settle()
    assert entered(*suspects, later) == [False] * 5
    isolation.leave(first)
    await settle()
    assert entered(*suspects, later) == [True, True, False, False, False]  # at most two for the second one
    passing = [asyncio.create_task(each.result().acquit()) for each in suspects[:2]]
    await asyncio.gather(*passing)
    assert [each.result() for each in passing] == [False, False]  # others are to be tried
    await settle()
    assert entered(*suspects[2:], later) == [False] * 3
    for each in suspects[:2]:
        each.result().leave()
    await settle()
    assert entered(*suspects[2:], later) == [True, False, False]
    suspects[2].result().leave()
    await settle()
    assert entered(suspects[3], later) == [True, False]
    assert await suspects[3].result().acquit()
    await settle()
    assert (entered(later), isolation.inside) == ([True], 2)


@in_virtual_time
async def test_a_trial_ends_with_its_engine() -> None:
    isolation = Isolation()
    suspects = [start(isolation.enter_trial(2)) for _ in range(2)]
    await settle()
    passing = asyncio.create_task(suspects[0].result().acquit())
    await settle()
    assert not passing.done()
    isolation.clear()
    assert await passing
    assert isolation.inside == 0
    trial = suspects[0].result().trial
    assert trial is not None
    assert trial.failed


@in_virtual_time
async def test_suspects_do_not_wait_for_a_dead_engine() -> None:
    isolation = Isolation()
    slow = await isolation.enter()
    isolation.clear()
    suspect = await isolation.enter_trial(1)
    waiting = start(isolation.enter())
    isolation.leave(slow)  # its client has read at last what it got before
    await settle()
    assert not waiting.done()
    isolation.leave(suspect)
    await waiting
    assert isolation.inside == 1


@in_virtual_time
async def test_others_do_not_wait_for_a_suspect_that_never_comes() -> None:
    isolation = Isolation()
    await isolation.enter_trial(1)
    waiting = start(isolation.enter())
    await settle()
    isolation.clear()
    await settle()
    assert waiting.done()


@pytest.mark.parametrize("let_in", [False, True])
def test_whoever_gives_up_waiting_holds_nobody_up(let_in: bool) -> None:
    @in_virtual_time
    async def given_up() -> None:
        isolation = Isolation()
        first = await isolation.enter_trial(1)
        leaving, other = start(isolation.enter_trial(1)), start(isolation.enter())
        await asyncio.sleep(0)
        if let_in:
            isolation.leave(first)
        leaving.cancel()
        await settle()
        assert leaving.cancelled()
        isolation.leave(first)
        await settle()
        assert other.done()
        assert isolation.inside == 1

    given_up()


@in_virtual_time
async def test_whoever_gives_up_as_it_is_let_in_holds_no_place() -> None:
    isolation = Isolation()
    suspect = await isolation.enter_trial(1)
    leaving = start(isolation.enter())
    await asyncio.sleep(0)
    isolation.leave(suspect)
    assert isolation.inside == 1, "it was let in, and its task has not run since"
    leaving.cancel()
    await settle()
    assert leaving.cancelled()
    assert (isolation.inside, isolation.tokens, isolation.sequences) == (0, 0, 0)


class SharedEngine:
    """A worker, of whose messages only those about turns matter, and the requests of servers in it."""

    def __init__(self) -> None:
        self.isolations = {"ours": Isolation(), "theirs": Isolation()}
        self.connected = set[str]()
        self._keeper = TurnKeeper(self._send_to, self.connected)
        for name, isolation in self.isolations.items():
            isolation.share(TrialTurn(partial(self._send, name), self._available))
            self.connect(name)

    def connect(self, name: str) -> None:
        self.connected.add(name)
        turn = self.isolations[name].turn
        assert turn is not None
        turn.connect()
        self._keeper.greet(name)

    def disconnect(self, name: str) -> None:
        self.connected.discard(name)

    def die(self) -> None:
        self._keeper = TurnKeeper(self._send_to, self.connected)
        for name, isolation in self.isolations.items():
            isolation.clear()
            self.connect(name)

    async def _available(self) -> None:
        """There always is an engine."""

    def _send(self, name: str, message: msgspec.Struct) -> None:
        if name in self.connected:
            assert self._keeper.receive(name, encode(message))

    def _send_to(self, name: str, message: bytes) -> bool:
        decoded = msgspec.msgpack.decode(message, type=Turn | Alive)
        turn = self.isolations[name].turn
        if isinstance(decoded, Turn) and turn is not None and name in self.connected:
            asyncio.get_running_loop().call_soon(turn.receive, decoded)
        return name in self.connected


@in_virtual_time
async def test_servers_that_share_an_engine_try_suspects_in_turn() -> None:
    engine = SharedEngine()
    ours, theirs = engine.isolations.values()
    suspect = start(ours.enter_trial(1))
    await settle()
    waiting, later = start(theirs.enter_trial(1)), start(theirs.enter())
    await settle()
    assert entered(suspect, waiting, later) == [True, False, False]
    engine.die()
    await settle()
    assert entered(waiting, later) == [True, False]
    assert await waiting.result().acquit()
    await settle()
    assert entered(later) == [True]
    waiting.result().leave()
    later.result().leave()
    (await ours.enter_trial(1)).leave()


@in_virtual_time
async def test_no_server_has_requests_in_a_shared_engine_in_which_one_tries_suspects() -> None:
    ours, theirs = SharedEngine().isolations.values()
    await settle()
    early, another = await theirs.enter(), await theirs.enter()
    suspect = start(ours.enter_trial(1))
    await settle()
    later = start(theirs.enter())
    await settle()
    assert theirs.is_trying  # its requests go to other engines
    early.leave()
    await settle()
    assert entered(suspect, later) == [False, False]
    another.leave()
    await settle()
    assert entered(suspect, later) == [True, False]
    assert await suspect.result().acquit()
    await settle()
    assert entered(later) == [True]
    waiting = start(theirs.enter_trial(1))
    later.result().leave()
    await settle()
    assert not waiting.done()  # the former suspect is in the engine
    suspect.result().leave()
    await settle()
    assert waiting.done()


@in_virtual_time
async def test_a_suspect_that_leaves_before_its_turn() -> None:
    ours, theirs = SharedEngine().isolations.values()
    early = await theirs.enter()
    suspect, later = start(ours.enter_trial(1)), start(ours.enter())
    await settle()
    suspect.cancel()
    await settle()
    assert entered(later) == [True]
    assert (await theirs.enter()).waited is False
    early.leave()


@in_virtual_time
async def test_servers_that_disconnect_hold_nobody_up() -> None:
    engine = SharedEngine()
    ours, theirs = engine.isolations.values()
    await theirs.enter()
    suspect = start(ours.enter_trial(1))
    await settle()
    assert entered(suspect) == [False]
    engine.disconnect("theirs")
    await asyncio.sleep(2 * LOOK_SECONDS)
    assert entered(suspect) == [True]
    engine = SharedEngine()
    ours, theirs = engine.isolations.values()
    await theirs.enter_trial(1)
    waiting = start(ours.enter())
    await settle()
    assert entered(waiting) == [False]
    engine.disconnect("theirs")
    await asyncio.sleep(2 * LOOK_SECONDS)
    assert entered(waiting) == [True]


@in_virtual_time
async def test_a_server_that_connects_during_a_trial_waits_for_its_end() -> None:
    engine = SharedEngine()
    ours, theirs = engine.isolations.values()
    engine.disconnect("theirs")
    suspect = await ours.enter_trial(1)
    engine.connect("theirs")
    waiting = start(theirs.enter())
    await settle()
    assert entered(waiting) == [False]
    assert await suspect.acquit()
    await settle()
    assert entered(waiting) == [True]


class SlowEngine:
    """A worker that reads messages once per step, and whose own arrive late, with many requests of three servers."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.isolations = {name: Isolation() for name in "abc"}
        self._inbox: list[tuple[str, bytes]] = []
        self._sent = defaultdict[str, deque[Turn]](deque)
        self._keeper = TurnKeeper(self._send_to, self.isolations.keys())
        for name, isolation in self.isolations.items():
            isolation.share(turn := TrialTurn(partial(self._send, name), self._available))
            turn.connect()
            self._keeper.greet(name)

    async def run(self) -> None:
        working = asyncio.create_task(self._work())
        async with asyncio.timeout(10_000), asyncio.TaskGroup() as group:
            for isolation in self.isolations.values():
                for _ in range(8):
                    group.create_task(self._request(isolation))
        working.cancel()

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(self._random.choice((0.01, 0.3, 1.5)))
            messages, self._inbox = self._inbox, []
            for name, message in messages:
                self._keeper.receive(name, message)

    async def _request(self, isolation: Isolation) -> None:
        for _ in range(6):
            await asyncio.sleep(self._random.uniform(0, 5))
            if self._random.random() < 0.6:
                presence = await isolation.enter()
                await asyncio.sleep(self._random.uniform(0, 2))
                presence.leave()
                continue
            trying = start(isolation.enter_trial(1))
            await asyncio.wait((trying,), timeout=self._random.choice((0.05, 1, None)))
            if not trying.done():
                trying.cancel()
                await asyncio.wait((trying,))
            if trying.cancelled():
                continue
            self._check_alone(isolation)
            await asyncio.sleep(self._random.uniform(0, 2))
            self._check_alone(isolation)
            if self._random.random() < 0.5:
                await trying.result().acquit()
            trying.result().leave()

    def _check_alone(self, isolation: Isolation) -> None:
        assert isolation.inside == 1
        assert sum(each.inside for each in self.isolations.values()) == 1

    async def _available(self) -> None:
        """There always is an engine."""

    def _send(self, name: str, message: msgspec.Struct) -> None:
        self._inbox.append((name, encode(message)))

    def _send_to(self, name: str, message: bytes) -> bool:
        decoded = msgspec.msgpack.decode(message, type=Turn | Alive)
        turn = self.isolations[name].turn
        if isinstance(decoded, Turn) and turn is not None:
            self._sent[name].append(decoded)  # as timers of the same time are in no order
            asyncio.get_running_loop().call_later(0.15, lambda: turn.receive(self._sent[name].popleft()))
        return True


@pytest.mark.parametrize("seed", range(20))
def test_in_any_order_suspects_are_alone_and_nothing_waits_forever(seed: int) -> None:
    @in_virtual_time
    async def run() -> None:
        await SlowEngine(seed).run()

    run()


@in_virtual_time
async def test_suspects_of_an_engine_that_is_no_longer_restarted() -> None:
    """The trial begins, and the requests in it find that there is no engine."""

    async def refuse() -> None:
        raise BackendUnhealthy("the engine was stopped")

    isolation = Isolation()
    isolation.share(TrialTurn(lambda _: None, refuse))
    (await isolation.enter_trial(1)).leave()
