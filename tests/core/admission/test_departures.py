import asyncio
import math

import pytest

from lmi_core.admission import admission
from lmi_core.admission.admission import FEWEST_DEPARTURES, MAX_ADVICE, MAX_GUESS, Admission, Departures
from lmi_core.errors import Overloaded
from tests.core.admission.test_admission import calls_of
from tests.virtual_time import in_virtual_time

PLACES = 40


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(admission, "time", clock)
    return clock


class LoopClock:
    """The clock of the running event loop."""

    @staticmethod
    def monotonic() -> float:
        return asyncio.get_running_loop().time()


def moving(clock: Clock, seconds: float, count: int = 20) -> Departures:
    found = Departures()
    found.set_load(PLACES, max_running=30)
    for _ in range(count):
        clock.now += seconds
        found.add(1)
    return found


def test_time_of_further_departures(clock: Clock) -> None:
    assert moving(clock, 0.5).seconds_for(10) == pytest.approx(5)


def test_a_queue_that_stands_still_is_slower(clock: Clock) -> None:
    found = moving(clock, 0.5)
    clock.now += 9.5
    assert found.seconds_for(10) == pytest.approx(10)


def test_nothing_is_known_of_a_few_departures(clock: Clock) -> None:
    assert moving(clock, 1, FEWEST_DEPARTURES - 1).seconds_for(1) is None


def test_pauses_between_requests_do_not_count(clock: Clock) -> None:
    found = moving(clock, 0.5)
    found.set_load(0, max_running=30)
    clock.now += 3600
    found.set_load(PLACES, max_running=30)
    assert found.seconds_for(10) == pytest.approx(5)


def test_a_few_requests_show_the_speed_of_a_full_engine(clock: Clock) -> None:
    found = Departures()
    found.set_load(3, max_running=30)
    for _ in range(20):
        clock.now += 1
        found.add(1)
    assert found.seconds_for(10) == pytest.approx(1)


def test_each_client_is_told_a_later_time(clock: Clock) -> None:
    found = moving(clock, 1)
    assert [found.advice(0, PLACES) for _ in range(3)] == pytest.approx([1, 2, 3])
    clock.now += 2
    found.add(2)  # of whom two have come back
    assert found.advice(0, PLACES) == pytest.approx(2, rel=0.2)


def test_a_client_that_is_refused_again_counts_once(clock: Clock) -> None:
    found = moving(clock, 1)
    for _ in range(100):
        found.add(1)
        clock.now += found.advice(0, PLACES)
    assert found.advice(0, PLACES) == pytest.approx(1, rel=0.1)


def test_advice_is_never_longer_than_clients_wait(clock: Clock) -> None:
    assert moving(clock, 10).advice(1000, PLACES) == MAX_ADVICE


def test_clients_of_a_new_server_come_back_one_after_another(clock: Clock) -> None:
    found = Departures()
    advice = [found.advice(0, PLACES) for _ in range(1000)]
    assert advice[: 2 * PLACES] == pytest.approx([count / PLACES for count in range(1, 2 * PLACES + 1)])
    assert advice[-1] == MAX_GUESS


async def request(queue: Admission, engine: asyncio.Semaphore, advice: list[float]) -> None:
    """Send requests of 32 / 18 seconds for a minute, and come back when advised."""
    loop = asyncio.get_running_loop()
    while loop.time() < 60:
        try:
            with queue.admit():
                async with engine:
                    await asyncio.sleep(32 / 18)
        except Overloaded as error:
            advice.append(error.retry_after or math.inf)
            await asyncio.sleep(max(1, math.ceil(advice[-1])))


@in_virtual_time
async def test_clients_that_follow_the_advice_are_told_when_their_place_is_free() -> None:
    """80 clients share 36 places, at 18 requests per second: the last one of the other 44 waits for 44 / 18 seconds."""
    advice: list[float] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(admission, "time", LoopClock)
        queue, engine = Admission("model", max_waiting=4, max_running=32), asyncio.Semaphore(32)
        await asyncio.gather(*(request(queue, engine, advice) for _ in range(80)))
    assert max(advice) < 1.5 * 44 / 18


def test_a_key_waits_for_its_turn_and_not_for_all_requests_of_another(clock: Clock) -> None:
    queue = Admission("model", max_waiting=40, max_running=1, queue_timeout=5)
    with calls_of("ann"):
        held = [queue.admit() for _ in range(30)]
    for ticket in held[:10]:
        clock.now += 1
        with ticket:
            pass
    with calls_of("ann"), pytest.raises(Overloaded, match="has 20 requests in its queue: another one would begin in"):
        queue.check()
    with calls_of("bob"):
        bobs = [queue.admit() for _ in range(2)]
        with pytest.raises(Overloaded, match="another one would begin in about 6 seconds"):
            queue.check()
    assert len(bobs) == 2
