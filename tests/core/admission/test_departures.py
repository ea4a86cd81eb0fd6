import pytest

from lmi_core.admission import admission
from lmi_core.admission.admission import FEWEST_DEPARTURES, MAX_ADVICE, Admission, Departures
from lmi_core.errors import Overloaded
from tests.core.admission.test_admission import calls_of


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


def moving(clock: Clock, seconds: float, count: int = 20) -> Departures:
    found = Departures()
    for _ in range(count):
        clock.now += seconds
        found.add(1, others_wait=True)
    return found


def test_time_of_further_departures(clock: Clock) -> None:
    assert moving(clock, 0.5).seconds_for(10) == pytest.approx(5)


def test_a_queue_that_stands_still_is_slower(clock: Clock) -> None:
    found = moving(clock, 0.5)
    clock.now += 9.5
    assert found.seconds_for(10) == pytest.approx(10)


def test_nothing_is_known_of_a_few_departures_or_where_nobody_waited(clock: Clock) -> None:
    assert moving(clock, 1, FEWEST_DEPARTURES - 1).seconds_for(1) is None
    found = moving(clock, 1)
    found.add(1, others_wait=False)
    assert (found.seconds_for(1), found.advice()) == (None, None)


def test_each_client_is_told_a_later_time(clock: Clock) -> None:
    found = moving(clock, 1)
    assert [found.advice(), found.advice(), found.advice()] == pytest.approx([1, 2, 3])
    clock.now += 1
    found.add(2, others_wait=True)  # of whom two have come back
    assert found.advice() == pytest.approx(2, rel=0.2)


def test_advice_is_never_longer_than_clients_wait(clock: Clock) -> None:
    assert moving(clock, 10).advice(1000) == MAX_ADVICE


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
