"""Requests in an engine that dies at certain tokens of certain requests."""

import asyncio
import math
from collections.abc import AsyncGenerator

import pytest

from lmi_core.errors import BackendUnhealthy, GenerationFailed
from lmi_core.workers.isolation import Presence
from lmi_core.workers.replica import Replica
from lmi_core.workers.replicas import Replicas
from lmi_core.workers.resumption import EngineLost, EngineTime, Resumption, current_engine_time
from lmi_core.workers.supervisor import Restarts
from tests.virtual_time import in_virtual_time

LENGTH = 60  # tokens of each answer


class Engines(Replica):
    """Engines that give each request the numbers from 0 on, one each second, until a request kills them."""

    is_available = False  # one has to be waited for
    process_ids = ()

    def __init__(self, poison: dict[str, int], most: int = 100, *, enabled: bool = True) -> None:
        super().__init__()
        replicas = Replicas(lambda _: self)
        replicas.members.append(self)
        self.resumption = Resumption(replicas, enabled=enabled)
        self.deaths = 0
        self.most_inside = 0
        self._poison = poison  # the token at which a request kills its engine
        self._most = most
        self._death = asyncio.get_running_loop().create_future()
        self._inside = 0

    @property
    def restarts(self) -> Restarts:
        return Restarts(0)

    def check_health(self) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def available(self) -> None:
        await asyncio.sleep(3)
        if self.deaths >= self._most:
            raise BackendUnhealthy("the engine died and is not restarted again")

    def ask(self, name: str) -> AsyncGenerator[int, None]:
        given: list[int] = []

        def note(number: int) -> int:
            given.append(number)
            return len(given)

        return self.resumption.stream(lambda _, presence: self._run(name, len(given), presence), note)

    async def _run(self, name: str, start: int, presence: Presence) -> AsyncGenerator[int, None]:
        assert start < LENGTH, "there is nothing left to do"
        self._inside += 1
        death = self._death
        try:
            for number in range(start, LENGTH):
                await asyncio.wait({death}, timeout=1)
                if not death.done() and self._poison.get(name, LENGTH) <= number:
                    self._die()
                if death.done():
                    raise EngineLost("the engine died", death.result())
                if number == LENGTH - 1:
                    presence.leave()
                yield number
        finally:
            self._inside -= 1

    def _die(self) -> None:
        self.deaths += 1
        self._death.set_result(self._inside)
        self.record_death()
        self._death = asyncio.get_running_loop().create_future()


async def answer(engines: Engines, name: str) -> list[int]:
    return [number async for number in engines.ask(name)]


@in_virtual_time
async def test_one_death_is_not_noticed() -> None:
    engines = Engines({})
    asked = [asyncio.create_task(answer(engines, str(i))) for i in range(20)]
    await asyncio.sleep(10)
    engines._die()
    assert await asyncio.gather(*asked) == [[*range(LENGTH)]] * 20


@in_virtual_time
async def test_who_kills_is_found_and_takes_nobody_along() -> None:
    engines = Engines({"poison": 20})
    asked = [asyncio.create_task(answer(engines, str(i))) for i in range(20)]
    poison = asyncio.create_task(answer(engines, "poison"))
    later = [asyncio.create_task(answer(engines, f"later {i}")) for i in range(3)]
    assert await asyncio.gather(*asked, *later) == [[*range(LENGTH)]] * 23
    with pytest.raises(
        GenerationFailed, match=r"^the engine died; it is not tried again, because the engine failed [67] times"
    ):
        await poison
    assert engines.deaths <= 2 + 5  # 24 are halved five times


@in_virtual_time
async def test_two_deaths_in_a_row_lose_nothing_and_cost_seconds() -> None:
    engines, clock = Engines({}), asyncio.get_running_loop().time
    begin = clock()
    asked = [asyncio.create_task(answer(engines, str(i))) for i in range(256)]
    await asyncio.sleep(8)
    engines._die()
    await asyncio.sleep(4)  # all are in the next one
    engines._die()
    assert await asyncio.gather(*asked) == [[*range(LENGTH)]] * 256
    trials = 2 * 20  # seconds, where one after the other would take 256 times as long
    assert clock() - begin < LENGTH + 3 * 4 + trials
    assert engines.isolation.inside == 0


@in_virtual_time
async def test_requests_that_end_with_their_trial() -> None:
    for seconds in range(30, 50):
        engines = Engines({})
        asked = [asyncio.create_task(answer(engines, str(i))) for i in range(6)]
        await asyncio.sleep(8)
        engines._die()
        await asyncio.sleep(seconds)
        engines._die()
        assert await asyncio.gather(*asked) == [[*range(LENGTH)]] * 6


@in_virtual_time
async def test_any_number_of_deaths_loses_nothing() -> None:
    engines = Engines({})
    asked = [asyncio.create_task(answer(engines, str(i))) for i in range(20)]
    for seconds in (8, 5, 6, 30, 5, 25, 40, 9):
        await asyncio.sleep(seconds)
        engines._die()
    assert await asyncio.gather(*asked) == [[*range(LENGTH)]] * 20


@in_virtual_time
async def test_a_killer_among_many_is_found_in_few_deaths() -> None:
    engines = Engines({"poison": 0})
    asked = [asyncio.create_task(answer(engines, str(i))) for i in range(127)]
    with pytest.raises(GenerationFailed, match="it is not tried again"):
        await answer(engines, "poison")
    assert await asyncio.gather(*asked) == [[*range(LENGTH)]] * 127
    assert engines.deaths <= 2 + 7  # 128 are halved seven times


@in_virtual_time
async def test_the_time_in_an_engine() -> None:
    engines, time, clock = Engines({}), EngineTime(), asyncio.get_running_loop().time
    current_engine_time.set(time)
    asked = asyncio.create_task(answer(engines, "a"))
    current_engine_time.set(EngineTime())
    others = [asyncio.create_task(answer(engines, str(i))) for i in range(3)]
    await asyncio.sleep(8)
    assert time.since == clock() - 8
    for _ in range(2):
        engines._die()
        await asyncio.sleep(1)
        assert time.since == math.inf
        await asyncio.sleep(4)
        assert time.since == pytest.approx(clock() - 2, abs=0.2)
    others[0].cancel()
    await asked
    assert time.since == math.inf
    await asyncio.wait(others)


@in_virtual_time
async def test_several_that_kill() -> None:
    engines = Engines({"a": 20, "b": 40, "c": 0})
    asked = [asyncio.create_task(answer(engines, name)) for name in (*"abcd", *"efgh")]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(result, GenerationFailed) for result in results] == [True] * 3 + [False] * 5
    assert results[3:] == [[*range(LENGTH)]] * 5


@in_virtual_time
async def test_alone_it_has_three_attempts() -> None:
    engines = Engines({"poison": 5})
    found: list[int] = []

    async def read() -> None:
        async for number in engines.ask("poison"):
            found.append(number)

    with pytest.raises(GenerationFailed, match="failed 3 times"):
        await read()
    assert found == [*range(5)]
    assert engines.deaths == 3


@in_virtual_time
async def test_a_client_that_does_not_read_holds_nobody_up() -> None:
    engines = Engines({})
    slow = engines.ask("slow")
    asked = [asyncio.create_task(answer(engines, str(i))) for i in range(5)]
    assert await anext(slow) == 0
    for _ in range(2):
        await asyncio.sleep(8)
        engines._die()
    assert await asyncio.gather(*asked) == [[*range(LENGTH)]] * 5
    assert [number async for number in slow] == [*range(1, LENGTH)]


@in_virtual_time
async def test_no_further_engine() -> None:
    engines = Engines({}, most=1)
    asked = [asyncio.create_task(answer(engines, str(i))) for i in range(3)]
    await asyncio.sleep(10)
    engines._die()
    for each in asked:
        with pytest.raises(GenerationFailed, match=r"^the engine died$"):
            await each


@in_virtual_time
async def test_it_can_be_disabled() -> None:
    engines = Engines({"a": 3}, enabled=False)
    with pytest.raises(EngineLost):
        await answer(engines, "a")


@in_virtual_time
async def test_a_request_that_is_dropped_while_it_waits() -> None:
    engines = Engines({})
    asked = [asyncio.create_task(answer(engines, str(i))) for i in range(3)]
    for _ in range(2):
        await asyncio.sleep(8)
        engines._die()
    await asyncio.sleep(1)
    asked[0].cancel()
    asked[1].cancel()
    assert await asked[2] == [*range(LENGTH)]
    assert engines.isolation.inside == 0


@in_virtual_time
async def test_requests_that_come_while_no_engine_runs_are_refused() -> None:
    async def refused(_: Engines, __: Presence) -> AsyncGenerator[int, None]:
        raise BackendUnhealthy("the engine is being restarted")
        yield 0

    engines = Engines({})
    with pytest.raises(BackendUnhealthy):
        await anext(engines.resumption.stream(refused, lambda _: 1))
