"""Isolation of requests in an engine, together and on trial, and their order."""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi_core.workers.isolation import Isolation, Presence
from lmi_core.workers.shared_worker import TrialTurn
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


@pytest.fixture
def isolations(tmp_path: Path) -> Iterator[tuple[Isolation, Isolation]]:
    """The requests of two servers in the engine that they share."""
    found = Isolation(), Isolation()
    turns = TrialTurn(tmp_path / "trial"), TrialTurn(tmp_path / "trial")
    for isolation, turn in zip(found, turns, strict=True):
        isolation.turn = turn
    yield found
    for turn in turns:
        turn.close()


@in_virtual_time
async def test_servers_that_share_an_engine_try_suspects_in_turn(isolations: tuple[Isolation, Isolation]) -> None:
    ours, theirs = isolations
    suspect = start(ours.enter_trial(1))
    await settle()
    waiting, later = start(theirs.enter_trial(1)), start(theirs.enter())
    await settle()
    assert entered(suspect, waiting, later) == [True, False, False]
    ours.clear()  # it has killed the engine
    await settle()
    assert entered(waiting, later) == [True, False]
    assert await waiting.result().acquit()
    await settle()
    assert entered(later) == [True]
    waiting.result().leave()
    later.result().leave()
    (await ours.enter_trial(1)).leave()


@in_virtual_time
async def test_no_server_has_requests_in_a_shared_engine_in_which_one_tries_suspects(
    isolations: tuple[Isolation, Isolation],
) -> None:
    ours, theirs = isolations
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
async def test_a_suspect_that_leaves_before_its_turn(isolations: tuple[Isolation, Isolation]) -> None:
    ours, theirs = isolations
    early = await theirs.enter()
    suspect, later = start(ours.enter_trial(1)), start(ours.enter())
    await settle()
    suspect.cancel()
    await settle()
    assert entered(later) == [True]
    assert (await theirs.enter()).waited is False
    early.leave()


@in_virtual_time
async def test_requests_without_locks(tmp_path: Path) -> None:
    """The lock file cannot be opened where descriptors run out, or the folder is gone."""
    isolation = Isolation()
    isolation.turn = TrialTurn(tmp_path / "none" / "trial")
    (await isolation.enter()).leave()
    suspect = await isolation.enter_trial(1)
    later = start(isolation.enter())
    await settle()
    assert entered(later) == [False]
    suspect.leave()
    await settle()
    assert entered(later) == [True]
