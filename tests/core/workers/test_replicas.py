"""Several engines of one model: their number, and requests that outlive any of them."""

import asyncio
import re
from collections.abc import AsyncGenerator

import pytest

from lmi_core.errors import BackendUnhealthy, ConfigurationError, GenerationFailed
from lmi_core.logs.logs import logging_of
from lmi_core.workers.isolation import Presence, Work
from lmi_core.workers.replicas import DRAIN_SECONDS, ONE, ReplicaCount
from tests.core.workers.numbers import LENGTH, RESTART_SECONDS, Engines, Numbers
from tests.virtual_time import in_virtual_time

WHOLE = [*range(LENGTH)]
THREE = ReplicaCount(3, 3)


@in_virtual_time
async def test_requests_of_a_dead_engine_continue_in_another_at_once() -> None:
    engines, clock = Engines(THREE), asyncio.get_running_loop().time
    await engines.replicas.start()
    asked = engines.asking(30)
    await asyncio.sleep(8)
    assert engines.inside == [10, 10, 10]
    begun = clock()
    engines.replicas.members[1].kill()
    await asyncio.sleep(0.5)
    assert engines.inside == [15, 0, 15]
    assert await asyncio.gather(*asked) == [WHOLE] * 30
    assert clock() - begun < LENGTH - 7 + 2  # nobody waited for the restart
    assert sum(engines.inside) == 0


@in_virtual_time
async def test_any_engines_die_at_any_time() -> None:
    engines = Engines(THREE)
    await engines.replicas.start()
    asked = engines.asking(40)
    for killed in (0, 1, 0, 2, 2, 1):
        await asyncio.sleep(RESTART_SECONDS + 3)
        engines.replicas.members[killed].kill()
    for each in engines.replicas.members:  # all at the same time
        await each.available()
    for each in engines.replicas.members:
        each.kill()
    assert await asyncio.gather(*asked) == [WHOLE] * 40


@in_virtual_time
async def test_an_engine_that_is_given_up_is_not_waited_for() -> None:
    engines = Engines(THREE)
    await engines.replicas.start()
    asked = engines.asking(9)
    await asyncio.sleep(5)
    failing = asyncio.create_task(engines.replicas.wait_given_up())
    for dead in engines.replicas.members[:2]:
        dead.kill(for_good=True)
        await asyncio.sleep(5)
    engines.replicas.check_health()
    assert await asyncio.gather(*asked) == [WHOLE] * 9
    assert not failing.done()
    asked = engines.asking(2)
    await asyncio.sleep(5)
    engines.replicas.members[2].kill(for_good=True)
    for each in asked:
        with pytest.raises(GenerationFailed, match="engine 2 died"):
            await each
    assert re.match("engine 0 died and is not restarted", await failing)
    with pytest.raises(BackendUnhealthy):
        await engines.replicas.available()


@in_virtual_time
async def test_engines_that_are_removed_do_not_keep_a_model_from_failing() -> None:
    engines = Engines(ReplicaCount(2, 2))
    await engines.replicas.start()
    failing = asyncio.create_task(engines.replicas.wait_given_up())
    await asyncio.sleep(1)
    await engines.replicas.scale(ONE)
    await engines.replicas.scale(ReplicaCount(2, 2))
    await engines.replicas.scale(ONE)
    engines.replicas.members[0].kill(for_good=True)
    assert "is not restarted again" in await asyncio.wait_for(failing, 10)


@in_virtual_time
async def test_new_requests_go_where_there_is_least_to_do_and_an_engine_runs() -> None:
    engines = Engines(ReplicaCount(2, 2))
    await engines.replicas.start()
    long = engines.asking(1, Work(rest=1000))
    await asyncio.sleep(0)
    short = engines.asking(5, Work(rest=10))
    await asyncio.sleep(1)
    assert engines.inside == [1, 5]
    engines.replicas.members[1].kill()
    await asyncio.sleep(0.5)
    short += engines.asking(1, Work(rest=10))
    await asyncio.sleep(0.5)
    assert engines.inside == [7, 0]
    assert await asyncio.gather(*long, *short) == [WHOLE] * 7


@in_virtual_time
async def test_the_number_of_engines_changes_while_they_work() -> None:
    engines, changes = Engines(), list[int]()
    replicas = engines.replicas
    replicas.on_change = lambda: changes.append(len(replicas.members))
    await replicas.start()
    asked = engines.asking(4)
    await asyncio.sleep(1)
    await replicas.scale(THREE)
    asked += engines.asking(6)
    await asyncio.sleep(1)
    assert engines.inside == [4, 3, 3]
    removed = [each for each in replicas.members if each.number]
    begun = asyncio.get_running_loop().time()
    await replicas.scale(ReplicaCount(1, 1))
    assert changes == [1, 2, 3, 2, 1]
    assert all(each.stopped for each in removed)
    assert removed[0].given == [0] * 3  # its requests were finished
    assert asyncio.get_running_loop().time() - begun <= LENGTH
    assert await asyncio.gather(*asked) == [WHOLE] * 10


@in_virtual_time
async def test_what_does_not_finish_in_time_continues_elsewhere() -> None:
    engines = Engines(ReplicaCount(2, 2))
    await engines.replicas.start()
    stream = asyncio.create_task(engines.ask())
    other = asyncio.create_task(engines.ask())
    await asyncio.sleep(1)
    for each in engines.replicas.members:
        each.isolation.wait_empty = asyncio.get_running_loop().create_future  # type: ignore[method-assign,assignment]
    begun = asyncio.get_running_loop().time()
    await engines.replicas.scale(ReplicaCount(1, 1))
    assert asyncio.get_running_loop().time() - begun == DRAIN_SECONDS
    assert [await stream, await other] == [WHOLE, WHOLE]


@in_virtual_time
async def test_full_engines_get_help_that_leaves_when_it_is_idle() -> None:
    engines = Engines(ReplicaCount(1, 3), max_sequences=4)
    with logging_of("numbers"):
        await engines.replicas.start()
    asked = engines.asking(4)
    await asyncio.sleep(20)
    assert engines.inside == [4]
    asked += engines.asking(3)
    await asyncio.sleep(6)
    assert len(engines.replicas.members) == 2
    asked += engines.asking(8)
    await asyncio.sleep(6)
    assert [each.log_model for each in engines.replicas.members] == ["numbers"] * 3
    assert await asyncio.gather(*asked) == [WHOLE] * 15
    assert len(engines.replicas.members) == 3
    await asyncio.sleep(240)
    assert len(engines.replicas.members) == 1
    assert await engines.ask() == WHOLE


@in_virtual_time
async def test_a_new_idle_time_is_for_help_that_is_already_idle() -> None:
    engines = Engines(ReplicaCount(1, 2), max_sequences=1)
    replicas = engines.replicas
    replicas.max_idle_time = 3600
    await replicas.start()
    await asyncio.gather(*engines.asking(2))
    assert len(replicas.members) == 2
    replicas.max_idle_time = 10
    await replicas.scale(replicas.count)
    await asyncio.sleep(30)
    assert len(replicas.members) == 1


@in_virtual_time
async def test_restarts_of_an_engine_that_was_removed_count() -> None:
    engines = Engines(ReplicaCount(2, 2))
    await engines.replicas.start()
    for each in engines.replicas.members:
        each.restarts.count = 1 + each.number
    await engines.replicas.scale(ONE)
    assert (len(engines.replicas.members), engines.replicas.figures.restarts) == (1, 3)


@in_virtual_time
async def test_help_stays_while_the_first_engine_is_not_there() -> None:
    engines = Engines(ReplicaCount(1, 2), max_sequences=1)
    await engines.replicas.start()
    asked = engines.asking(2)
    await asyncio.gather(*asked)
    first, helper = engines.replicas.members
    first.kill(for_good=True)
    await asyncio.sleep(600)
    assert not helper.stopped
    assert await engines.ask() == WHOLE
    await engines.replicas.drop_given_up()
    assert first.stopped
    assert engines.replicas.members == [helper]
    assert await asyncio.gather(*engines.asking(3)) == [WHOLE] * 3
    assert len(engines.replicas.members) == 2


@in_virtual_time
async def test_what_waits_is_told_when_more_engines_may_be_started() -> None:
    engines = Engines(ReplicaCount(1, 3), max_sequences=1)
    await engines.replicas.start()
    asked = engines.asking(1)
    await asyncio.sleep(1)

    def ask() -> None:
        asked.extend(engines.asking(1))

    engines.replicas.on_change = ask
    ask()
    await asyncio.sleep(12)
    assert len(engines.replicas.members) == 3
    await asyncio.gather(*asked)


@in_virtual_time
async def test_engines_in_which_prompts_wait_get_help() -> None:
    engines = Engines(ReplicaCount(1, 2), max_sequences=100)
    await engines.replicas.start()
    asked = engines.asking(2, Work(prefill=30, rest=1))
    await asyncio.sleep(1)
    asked += engines.asking(1)
    await asyncio.sleep(10)
    assert engines.inside == [3]
    asked += engines.asking(1)
    await asyncio.sleep(6)
    assert len(engines.replicas.members) == 2
    asked += engines.asking(1)
    await asyncio.sleep(1)
    assert engines.inside == [4, 1]
    assert await asyncio.gather(*asked) == [WHOLE] * 5


@in_virtual_time
async def test_one_that_cannot_be_started() -> None:
    engines = Engines(faulty={1, 2})
    await engines.replicas.start()
    with pytest.raises(ConfigurationError, match=r"engine [12] has no memory"):
        await engines.replicas.scale(THREE)
    assert len(engines.replicas.members) == 1
    assert await engines.ask() == WHOLE
    engines.faulty.clear()
    await engines.replicas.scale(THREE)
    assert [each.number for each in engines.replicas.members] == [0, 1, 2]
    at_start = Engines(THREE, faulty={2})
    with pytest.raises(ConfigurationError, match="engine 2 has no memory"):
        await at_start.replicas.start()
    started = list(at_start.replicas.members)
    await at_start.replicas.stop()
    assert [each.stopped for each in started] == [True, True]


@in_virtual_time
async def test_a_request_that_kills_engines_spares_the_others() -> None:
    engines = Engines(ReplicaCount(2, 2))
    await engines.replicas.start()
    asked = engines.asking(6)

    async def poison() -> None:
        given: list[int] = []

        def note(number: int) -> int:
            given.append(number)
            return len(given)

        async def killing(engine: Numbers, presence: Presence) -> AsyncGenerator[int, None]:
            async for number in engine.run(len(given), presence):
                if number >= 3:
                    engine.kill()
                else:
                    yield number

        async for _ in engines._resumption.stream(killing, note):
            pass

    with pytest.raises(GenerationFailed, match="it is not tried again"):
        await poison()
    assert await asyncio.gather(*asked) == [WHOLE] * 6


@in_virtual_time
async def test_another_version_takes_the_numbers_that_are_left() -> None:
    old, new = Engines(THREE), Engines(THREE)
    await old.replicas.start()
    asked = old.asking(2)
    await asyncio.sleep(1)
    await old.replicas.limit_to(2)
    await new.replicas.start(old.replicas)
    assert [[each.number for each in engines.replicas.members] for engines in (old, new)] == [[0, 1], [2]]
    removing = asyncio.create_task(old.replicas.limit_to(1))
    await asyncio.sleep(1)
    assert len(old.replicas.members) == 1
    removing.cancel()  # its requests have not ended
    await asyncio.wait([removing])
    assert len(old.replicas.members) == 2
    assert await asyncio.gather(*asked) == [WHOLE] * 2


@in_virtual_time
async def test_another_version_takes_devices_that_are_free_when_numbers_have_holes() -> None:
    old, new = Engines(ReplicaCount(4, 4), groups=2), Engines(ReplicaCount(4, 4), groups=2)
    await old.replicas.start()
    for each in [each for each in old.replicas.members if each.number != 2]:
        await old.replicas._remove(each)
    await new.replicas.start(old.replicas)
    assert [each.number for each in new.replicas.members] == [1]  # 0 would be on the devices of 2
    await new.replicas.limit_to(3)
    assert sorted(each.number % 2 for each in new.replicas.members) == [0, 1, 1]
