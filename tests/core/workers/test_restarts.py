"""Restarts of what died, with waits that are only counted."""

import asyncio
import logging

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.workers.supervisor import Restarts


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return waited


class Flaky:
    """Starts with the attempt of that number."""

    def __init__(self, succeeds_at: int) -> None:
        self._left = succeeds_at

    async def start(self) -> str:
        self._left -= 1
        if self._left > 0:
            raise ConfigurationError("no memory")
        return "started"


async def test_waits_grow_up_to_a_bound(waits: list[float]) -> None:
    assert await Restarts(10).attempt(Flaky(8).start) == "started"
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]


async def test_as_many_restarts_in_a_row_as_the_threshold(waits: list[float]) -> None:
    restarts = Restarts(3)
    assert await restarts.attempt(Flaky(3).start) == "started"
    restarts.reset_count()
    assert not restarts.given_up.is_set()
    assert await restarts.attempt(Flaky(4).start) is None
    assert len(waits) == 6
    assert await restarts.attempt(Flaky(1).start) is None
    assert restarts.given_up.is_set()


async def test_words(waits: list[float], caplog: pytest.LogCaptureFixture) -> None:
    restarts = Restarts(1, "the worker")
    with caplog.at_level(logging.WARNING):
        await restarts.attempt(Flaky(1).start)
        restarts.reset_count()
        await restarts.attempt(Flaky(2).start)
    assert caplog.messages == [
        "the worker was restarted",
        "the worker could not be restarted: no memory",
        "the worker died and is not restarted again, after 1 consecutive restarts (retry_threshold)",
    ]
    assert restarts.given_up.is_set()
    assert len(waits) == 2


async def test_none_are_allowed(waits: list[float]) -> None:
    assert await Restarts(0).attempt(Flaky(1).start) is None
    assert waits == []
