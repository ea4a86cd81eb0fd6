"""Choice of the address that the server listens on."""

import re
from typing import NamedTuple

from lmi_core.configuration.configuration import DEFAULT, Given
from lmi_core.errors import ConfigurationError
from lmi_handlers.container.declarations import COMMAND_LINE
from lmi_handlers.container.server_keys import GRPC_PORT, INFERENCE_ADDRESS, PORT
from lmi_handlers.container.settings import Settings
from lmi_handlers.container.variables import BIND_TO_PORT

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080
EVERY_HOST = "0.0.0.0"
HTTP_PORT = 80  # the port of a URL without one
MOST_PORT = 65535

_ADDRESS = re.compile(r"(?P<scheme>[a-z]+):(?://)?(?P<host>\[[^]]+\]|[^:/]+)?(?::(?P<port>\d+))?(?P<path>/.*)?", re.I)


class Address(NamedTuple):
    """A host and a port, each with its source."""

    host: Given
    port: Given


def choose_address(host: str | None, port: int | None, settings: Settings, in_container: str | None) -> Address:
    """Return the address: the command line's, otherwise SageMaker's, otherwise DJLServing's.

    `in_container` is set in a SageMaker container, where the default host is 0.0.0.0. Raise ConfigurationError where an
    address is not valid.
    """
    address = settings.get(INFERENCE_ADDRESS)
    given_host, given_port = _parse(address) if address else (None, None)
    bind_to_port = settings.get(BIND_TO_PORT)
    sign = bind_to_port.source if bind_to_port else in_container
    hosts = [
        Given("host", host, COMMAND_LINE) if host else None,
        given_host,
        Given("host", EVERY_HOST, sign) if sign else None,
        Given("host", DEFAULT_HOST, DEFAULT),
    ]
    ports = [
        Given("port", str(port), COMMAND_LINE) if port is not None else None,
        _checked_port(bind_to_port),
        _checked_port(settings.get(PORT)),
        given_port,
        Given("port", str(DEFAULT_PORT), DEFAULT),
    ]
    return Address(next(filter(None, hosts)), next(filter(None, ports)))


def choose_grpc_port(port: int | None, settings: Settings) -> Given | None:
    """Return the port of gRPC, None where it is not to be served. Raise ConfigurationError where it is not valid."""
    if port is not None:
        return Given(GRPC_PORT, str(port), COMMAND_LINE)
    return _checked_port(settings.get(GRPC_PORT))


def _parse(given: Given) -> tuple[Given, Given]:
    match = _ADDRESS.fullmatch(given.value)
    scheme = match["scheme"].lower() if match else ""
    if scheme in ("https", "unix"):
        kind = "HTTPS" if scheme == "https" else "a Unix socket"
        raise ConfigurationError(
            f"{given.source}: {given.name} asks for {kind}, which is not supported: give http://HOST:PORT, and put a "
            f"proxy in front. Given: {given.value}"
        )
    if match is None or scheme != "http" or not match["host"] or match["path"] not in (None, "/"):
        raise ConfigurationError(f"{given.source}: {given.name} must be http://HOST:PORT. Given: {given.value}")
    port = _checked_port(given._replace(name="port", value=match["port"] or str(HTTP_PORT)))
    assert port is not None
    return given._replace(name="host", value=match["host"].strip("[]")), port


def _checked_port(given: Given | None) -> Given | None:
    if given is not None and not (given.value.isdecimal() and int(given.value) <= MOST_PORT):
        raise ConfigurationError(
            f"{given.source}: the port must be an integer from 0 to {MOST_PORT}. Given: {given.value}"
        )
    return given
