"""Supervision of an engine that dies on command."""

import asyncio

import pytest

from lmi_core.engines.supervisor import Supervisor
from lmi_core.errors import BackendUnhealthy, ConfigurationError
from tests.virtual_time import in_virtual_time


class Engines:
    """Engines, which are numbers; from one on, no more can be created."""

    def __init__(self, most: int = 100) -> None:
        self.ended: list[int] = []
        self.created = 0
        self._most = most
        self._deaths: list[asyncio.Future[str]] = []

    async def create(self) -> int:
        if self.created == self._most:
            raise ConfigurationError("no memory")
        self.created += 1
        self._deaths.append(asyncio.get_running_loop().create_future())
        return self.created

    async def watch(self, engine: int) -> str:
        return await self._deaths[engine - 1]

    async def end(self, engine: int) -> None:
        self.ended.append(engine)

    def kill(self) -> None:
        self._deaths[-1].set_result("the engine died")

    def supervisor(self, retry_threshold: int = 3) -> Supervisor[int]:
        return Supervisor(self.create, self.watch, self.end, retry_threshold)


@in_virtual_time
async def test_another_one_runs_after_a_death() -> None:
    engines = Engines()
    supervisor = engines.supervisor()
    with pytest.raises(BackendUnhealthy, match="is starting"):
        _ = supervisor.running
    await supervisor.start()
    assert supervisor.running == 1
    engines.kill()
    await asyncio.sleep(0.1)
    with pytest.raises(BackendUnhealthy, match="the engine died and is being restarted"):
        _ = supervisor.running
    assert engines.ended == [1]
    await asyncio.sleep(1)
    assert supervisor.running == 2
    await supervisor.stop()
    await supervisor.stop()
    assert engines.ended == [1, 2]


@in_virtual_time
async def test_it_is_given_up_after_too_many_in_a_row() -> None:
    engines = Engines(most=1)
    supervisor = engines.supervisor(retry_threshold=2)
    await supervisor.start()
    engines.kill()
    await supervisor.restarts.given_up.wait()
    with pytest.raises(BackendUnhealthy, match="not restarted again, after 2 consecutive restarts"):
        _ = supervisor.running
    await supervisor.stop()


async def test_one_that_cannot_be_created_at_first_stops_the_start() -> None:
    supervisor = Engines(most=0).supervisor()
    with pytest.raises(ConfigurationError, match="no memory"):
        await supervisor.start()
    await supervisor.stop()


async def test_stopped_at_once_it_is_ended() -> None:
    engines = Engines()
    supervisor = engines.supervisor()
    await supervisor.start()
    await supervisor.stop()
    assert engines.ended == [1]
    with pytest.raises(BackendUnhealthy):
        _ = supervisor.running


class Unreliable(Engines):
    """Engines whose second one cannot be created, for want of descriptors, and whose first cannot be ended."""

    async def create(self) -> int:
        if self.created == 1:
            self.created += 1
            self._deaths.append(asyncio.get_running_loop().create_future())
            raise OSError(24, "Too many open files")
        return await super().create()

    async def end(self, engine: int) -> None:
        await super().end(engine)
        if engine == 1:
            raise OSError(28, "No space left on device")


@in_virtual_time
async def test_no_error_ends_the_supervision(caplog: pytest.LogCaptureFixture) -> None:
    engines = Unreliable()
    supervisor = engines.supervisor()
    await supervisor.start()
    engines._deaths[-1].set_exception(RuntimeError("the connection is gone"))
    await asyncio.sleep(0.1)
    with pytest.raises(BackendUnhealthy, match="the engine could no longer be watched and is being restarted"):
        _ = supervisor.running
    await asyncio.sleep(5)
    assert supervisor.running == 3
    assert all(text in caplog.text for text in ("Too many open files", "No space left", "the connection is gone"))
    await supervisor.stop()


@in_virtual_time
async def test_errors_of_any_kind_count_as_failed_restarts() -> None:
    engines = Engines()
    supervisor = engines.supervisor(retry_threshold=2)
    await supervisor.start()

    async def fails() -> int:
        raise OSError(28, "No space left on device")

    supervisor._create = fails
    engines.kill()
    await supervisor.restarts.given_up.wait()
    with pytest.raises(BackendUnhealthy, match="is not restarted again"):
        _ = supervisor.running
    await supervisor.stop()
