import asyncio

import pytest

from lmi_core.admission.turns import DynamicBatch
from tests.virtual_time import in_virtual_time

LONG = 60.0
AT_MOST = 20.0  # seconds for which a start is waited for, whatever the delay


class Member:
    """A task that holds a place in a batch until it is told to leave."""

    def __init__(self, batch: DynamicBatch, client: str = "") -> None:
        self.started = asyncio.Event()
        self._leave = asyncio.Event()
        self._task = asyncio.create_task(self._hold(batch, client))

    async def _hold(self, batch: DynamicBatch, client: str) -> None:
        with batch.of(client, 1, lambda: False) as turn:
            await turn.wait()
            self.started.set()
            await self._leave.wait()

    async def leave(self) -> None:
        self._leave.set()
        await self._task

    async def cancel(self) -> None:
        self._task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self._task


async def wait_started(*members: Member) -> None:
    """Wait until all have started, which those whose batch is full do long before a delay of LONG has passed."""
    async with asyncio.timeout(AT_MOST):
        for member in members:
            await member.started.wait()


async def waiting(*members: Member) -> bool:
    """Whether none has started once every task that could run has run."""
    for _ in range(20):
        await asyncio.sleep(0)
    return not any(member.started.is_set() for member in members)


async def test_full_batch_starts_at_once() -> None:
    batch = DynamicBatch(3, LONG)
    members = [Member(batch) for _ in range(2)]
    assert await waiting(*members)
    await wait_started(*members, Member(batch))


async def test_batch_of_one() -> None:
    batch = DynamicBatch(1, LONG)
    await wait_started(Member(batch))


@in_virtual_time
async def test_incomplete_batch_starts_after_the_delay() -> None:
    now = asyncio.get_running_loop().time
    batch, begin = DynamicBatch(4, 0.03), now()
    members = [Member(batch), Member(batch)]
    assert await waiting(*members)
    await wait_started(*members)
    assert now() - begin == pytest.approx(0.03)


async def test_next_batch_waits_for_the_last_of_this_one() -> None:
    batch = DynamicBatch(2, LONG)
    running = [Member(batch), Member(batch)]
    await wait_started(*running)
    following = [Member(batch), Member(batch)]
    assert await waiting(*following)
    await running[0].leave()
    assert await waiting(*following)
    await running[1].leave()
    await wait_started(*following)


async def test_batches_start_in_the_order_in_which_they_filled() -> None:
    batch = DynamicBatch(1, LONG)
    members = [Member(batch) for _ in range(3)]
    for place, member in enumerate(members):
        await wait_started(member)
        assert await waiting(*members[place + 1 :])
        await member.leave()


async def test_those_that_come_while_a_batch_runs_start_together() -> None:
    batch = DynamicBatch(3, 0)
    running = Member(batch)
    await wait_started(running)
    early = Member(batch)
    assert await waiting(early)
    late = Member(batch)
    assert await waiting(early, late)
    await running.leave()
    await wait_started(early, late)
    assert await waiting(Member(batch))


async def test_place_of_one_that_left_before_the_start_is_free() -> None:
    batch = DynamicBatch(2, LONG)
    leaving = Member(batch)
    assert await waiting(leaving)
    await leaving.cancel()
    staying = [Member(batch)]
    assert await waiting(*staying)
    staying.append(Member(batch))
    await wait_started(*staying)
    assert await waiting(Member(batch), Member(batch))


async def test_one_of_several_leaves_before_the_start() -> None:
    batch = DynamicBatch(3, LONG)
    members = [Member(batch), Member(batch)]
    assert await waiting(*members)
    await members[0].cancel()
    third = Member(batch)
    assert await waiting(members[1], third)
    await wait_started(members[1], third, Member(batch))


async def test_full_batch_that_everybody_left_holds_nobody_up() -> None:
    batch = DynamicBatch(2, LONG)
    running = [Member(batch), Member(batch)]
    await wait_started(*running)
    left = [Member(batch), Member(batch)]
    assert await waiting(*left)
    for member in left:
        await member.cancel()
    following = [Member(batch), Member(batch)]
    assert await waiting(*following)
    for member in running:
        await member.leave()
    await wait_started(*following)


async def test_clients_take_turns_where_more_wait_than_fit() -> None:
    batch = DynamicBatch(2, LONG)
    running = [Member(batch, "ann"), Member(batch, "ann")]
    await wait_started(*running)
    many = [Member(batch, "ann") for _ in range(6)]
    assert await waiting(*many)
    bob, carol = Member(batch, "bob"), Member(batch, "carol")
    assert await waiting(bob, carol)
    for member in running:
        await member.leave()
    await wait_started(many[0], bob)
    assert await waiting(carol, *many[1:])
    for member in (many[0], bob):
        await member.leave()
    await wait_started(carol, many[1])
    assert await waiting(*many[2:])


@in_virtual_time
async def test_the_delay_is_of_whoever_has_waited_longest() -> None:
    now = asyncio.get_running_loop().time
    batch, begin = DynamicBatch(2, 1), now()
    running = [Member(batch), Member(batch)]
    await wait_started(*running)
    waits = Member(batch, "ann")
    assert await waiting(waits)
    await asyncio.sleep(0.75)
    for member in running:
        await member.leave()
    await wait_started(waits)
    assert now() - begin == pytest.approx(1)


async def test_larger_batches_start_at_once_when_they_become_smaller() -> None:
    batch = DynamicBatch(3, LONG)
    members = [Member(batch), Member(batch)]
    assert await waiting(*members)
    batch.change(2, LONG)
    await wait_started(*members)


async def test_cancelled_member_of_a_running_batch_lets_the_next_start() -> None:
    batch = DynamicBatch(1, LONG)
    running, following = Member(batch), Member(batch)
    await wait_started(running)
    assert await waiting(following)
    await running.cancel()
    await wait_started(following)


async def test_error_in_a_member_lets_the_next_start() -> None:
    batch = DynamicBatch(1, LONG)

    async def fail() -> None:
        with batch.of("", 1, lambda: False) as turn:
            await turn.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    await wait_started(Member(batch))
