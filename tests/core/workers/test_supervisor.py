"""Supervision of an engine that dies on command."""

import asyncio

import pytest

from lmi_core.errors import BackendUnhealthy, ConfigurationError
from lmi_core.workers.supervisor import Supervisor
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

    def supervisor(self, retry_threshold: int = 3, loading_timeout: float = 1800) -> Supervisor[int]:
        return Supervisor(self.create, self.watch, self.end, retry_threshold, loading_timeout)


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


class Hanging(Engines):
    """Engines of which the first takes some seconds to be created, and the second never is."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.cancelled = 0

    async def create(self) -> int:
        await asyncio.sleep(self.seconds)
        if self.created == 1 and not self.cancelled:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return await super().create()


@in_virtual_time
@pytest.mark.parametrize(
    ("seconds", "loading_timeout", "bound"),
    [(10, 1800, 120), (60, 1800, 300), (60, 100, 100)],
)
async def test_a_restart_that_hangs_has_failed(
    seconds: float, loading_timeout: float, bound: float, caplog: pytest.LogCaptureFixture
) -> None:
    engines = Hanging(seconds)
    supervisor = engines.supervisor(loading_timeout=loading_timeout)
    await supervisor.start()
    engines.kill()
    await asyncio.sleep(bound)
    assert engines.cancelled == 0
    await asyncio.sleep(1)
    assert engines.cancelled == 1
    assert f"could not be restarted: it did not start within {bound} seconds" in caplog.text
    await supervisor.available()
    assert supervisor.running == 2
    await supervisor.stop()


@in_virtual_time
async def test_restarts_that_hang_are_given_up(caplog: pytest.LogCaptureFixture) -> None:
    engines = Engines()
    supervisor = engines.supervisor(retry_threshold=2)
    await supervisor.start()

    async def hangs() -> int:
        await asyncio.Event().wait()
        return 0

    supervisor._create = hangs
    waiting = asyncio.create_task(supervisor.available())
    engines.kill()
    await asyncio.sleep(0.1)
    later = asyncio.create_task(supervisor.available())
    await supervisor.restarts.given_up.wait()
    await waiting
    with pytest.raises(BackendUnhealthy, match="is not restarted again"):
        await later
    assert caplog.text.count("did not start within 120 seconds") == 2
    await supervisor.stop()


@in_virtual_time
async def test_the_timeout_of_the_engine_itself_is_a_failed_restart(caplog: pytest.LogCaptureFixture) -> None:
    engines = Engines()
    supervisor = engines.supervisor(retry_threshold=1)
    await supervisor.start()

    async def times_out() -> int:
        raise TimeoutError("no core came")

    supervisor._create = times_out
    engines.kill()
    await supervisor.restarts.given_up.wait()
    assert "no core came" in caplog.text
    await supervisor.stop()


@in_virtual_time
async def test_requests_are_told_when_the_next_engine_may_be_there() -> None:
    engines = Hanging(7)
    supervisor = engines.supervisor()
    await supervisor.start()
    engines.kill()
    await asyncio.sleep(0.1)
    with pytest.raises(BackendUnhealthy) as raised:
        _ = supervisor.running
    assert raised.value.retry_after == pytest.approx(7.4)
    await asyncio.sleep(60)
    assert supervisor.unhealthy().retry_after == 1
    await supervisor.stop()
