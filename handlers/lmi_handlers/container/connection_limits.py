"""The limits of connections, from the environment and config.properties."""

import math
from typing import Any

from lmi_core.configuration.configuration import Given
from lmi_core.errors import ConfigurationError
from lmi_handlers.access import api_keys
from lmi_handlers.container.server_keys import (
    BODY_TIMEOUT,
    HEADER_TIMEOUT,
    KEEP_ALIVE_TIMEOUT,
    MAX_CONNECTIONS,
    MAX_PENDING_BODY_BYTES,
    MIN_TRANSFER_RATE,
    WRITE_TIMEOUT,
)
from lmi_handlers.container.settings import Settings
from lmi_handlers.http.connections.limits import ConnectionLimits

COUNTS = (MAX_CONNECTIONS, MIN_TRANSFER_RATE, MAX_PENDING_BODY_BYTES)
TIMES = (HEADER_TIMEOUT, BODY_TIMEOUT, WRITE_TIMEOUT, KEEP_ALIVE_TIMEOUT)


def choose_limits(settings: Settings) -> ConnectionLimits:
    """Return the limits, by default those of ConnectionLimits. Raise ConfigurationError if a value is invalid."""
    given: dict[str, Any] = {name: count(found) for name in COUNTS if (found := settings.get(name))}
    given |= {name: _seconds(found) for name in TIMES if (found := settings.get(name))}
    return ConnectionLimits(**given)


def count(given: Given) -> int:
    """Return the value as a number of at least 1. Raise ConfigurationError if it is not one."""
    return api_keys.count(f"{given.source}: {given.name}", given.value)


def _seconds(given: Given) -> float:
    try:
        seconds = float(given.value)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise ConfigurationError(
            f"{given.source}: {given.name} must be a number of seconds greater than 0. Given: {given.value}"
        )
    return seconds
