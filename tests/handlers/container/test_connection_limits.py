"""The bounds on connections, from the environment and config.properties."""

import re

import pytest

from lmi_core.configuration.configuration import Setting
from lmi_core.errors import ConfigurationError
from lmi_handlers.container.access_settings import choose_limits
from lmi_handlers.container.settings import Settings
from lmi_handlers.http.connections.limits import ConnectionLimits


def test_defaults() -> None:
    assert choose_limits(Settings({})) == ConnectionLimits()


def test_each_from_the_environment() -> None:
    settings = Settings(
        {
            "SERVING_MAX_CONNECTIONS": "200",
            "SERVING_HEADER_TIMEOUT": "1.5",
            "SERVING_BODY_TIMEOUT": "2",
            "SERVING_WRITE_TIMEOUT": "3",
            "SERVING_KEEP_ALIVE_TIMEOUT": "620",
            "serving_min_transfer_rate": "50",
            "SERVING_MAX_PENDING_BODY_BYTES": "1000",
        }
    )
    assert choose_limits(settings) == ConnectionLimits(200, 1.5, 2, 3, 620, 50, 1000)
    assert settings.warnings == []


def test_the_environment_overrides_config_properties() -> None:
    given = {"keep_alive_timeout": "5", "body_timeout": "6"}
    file = [Setting(name, value, "config.properties") for name, value in given.items()]
    limits = choose_limits(Settings({"SERVING_KEEP_ALIVE_TIMEOUT": "7"}, file))
    assert (limits.keep_alive_timeout, limits.body_timeout) == (7, 6)


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "1" * 5000])
@pytest.mark.parametrize("name", ["max_connections", "min_transfer_rate", "max_pending_body_bytes"])
def test_counts_that_are_wrong(name: str, value: str) -> None:
    message = f"environment SERVING_{name.upper()}: {name} must be an integer from 1 to 999999999. Given: {value}"
    with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}$"):
        choose_limits(Settings({f"SERVING_{name.upper()}": value}))


@pytest.mark.parametrize("value", ["0", "-1", "soon", "inf", "nan"])
@pytest.mark.parametrize("name", ["header_timeout", "body_timeout", "write_timeout", "keep_alive_timeout"])
def test_times_that_are_wrong(name: str, value: str) -> None:
    source = f"environment SERVING_{name.upper()}: {name}"
    message = f"{source} must be a number of seconds greater than 0. Given: {value}"
    with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}$"):
        choose_limits(Settings({f"SERVING_{name.upper()}": value}))
