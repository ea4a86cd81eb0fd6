"""A burst of requests and the event loop."""

import asyncio

from lmi_core.turns import Turns


async def test_others_get_their_turn_between_the_requests_of_a_burst() -> None:
    turns, events = Turns(), list[str]()
    over = asyncio.Event()

    async def request(number: int) -> None:
        await turns.next()
        events.append(f"request {number}")
        if number == 2:
            over.set()

    def other() -> None:
        if events and events[-1] != "other":
            events.append("other")
        if not over.is_set():
            asyncio.get_running_loop().call_soon(other)

    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(request(number))
        other()
    assert events[:5] == ["request 0", "other", "request 1", "other", "request 2"]


async def test_a_request_that_leaves_holds_up_nobody() -> None:
    turns = Turns()
    first, left, last = (asyncio.create_task(turns.next()) for _ in range(3))
    await asyncio.sleep(0)
    left.cancel()
    async with asyncio.timeout(30):
        await first
        await last
    assert left.cancelled()
