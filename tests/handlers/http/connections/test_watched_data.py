"""How long ago data came is watched by timers, of which none is due at once."""

import asyncio
from collections.abc import Callable

import pytest

from lmi_handlers.http.connections.connection import WITH_THE_REQUEST, Connection
from lmi_handlers.http.connections.connections import Connections
from lmi_handlers.http.connections.limits import DEFAULT_LIMITS

NOW = 0.2  # by floating point, 0.2 + 0.1 is later than 0.3


async def test_no_timer_for_less_than_the_clock_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    connection = Connection(asyncio.Protocol(), Connections(DEFAULT_LIMITS))
    connection.served = True
    now, delays = NOW, list[float]()

    def call_later(delay: float, _: Callable[[], object]) -> None:
        delays.append(delay)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", lambda: now)
        patched.setattr(loop, "call_later", call_later)
        connection.data_received(b"GET")
        now = 0.3
        assert now < NOW + WITH_THE_REQUEST
        connection._look_for_data()
    assert delays == [WITH_THE_REQUEST]
