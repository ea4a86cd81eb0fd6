"""The choice of the address that the server listens on."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from lmi_core.configuration.configuration import DEFAULT, Setting
from lmi_core.configuration.host_patterns import DEFAULT_PORTS
from lmi_core.errors import ConfigurationError
from lmi_handlers.access.options import UNIX, ListenAddress
from lmi_handlers.container.declarations import COMMAND_LINE
from lmi_handlers.container.settings import Settings
from lmi_handlers.container.variables import BIND_TO_PORT

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080
EVERY_HOST = "0.0.0.0"
MAX_PORT = 65535
FREE_PORT = "0"
MAX_SOCKET_PATH = 107  # bytes, of a Unix socket on Linux

_ADDRESS = re.compile(r"(?P<scheme>[a-z]+):(?://)?(?P<host>\[[^]]+\]|[^:/]+)?(?::(?P<port>\d+))?(?P<path>/.*)?", re.I)


class Address(NamedTuple):
    """A host and a port, each with its source."""

    host: Setting
    port: Setting


def choose_address(host: str | None, port: int | None, settings: Settings, in_container: str | None) -> Address:
    """Return the address: the command line's, otherwise SageMaker's, otherwise DJLServing's.

    `in_container` is set in a SageMaker container, where the default host is 0.0.0.0. Raise ConfigurationError if an
    address is invalid.
    """
    if host == "":
        raise ConfigurationError("--host must be an address, such as 127.0.0.1, or 0.0.0.0 for all. Given: nothing")
    address = settings.get("inference_address")
    given_host, given_port = _parse(address) if address else (None, None)
    bind_to_port = settings.get(BIND_TO_PORT)
    sign = bind_to_port.source if bind_to_port else in_container
    hosts = [
        Setting("host", host, COMMAND_LINE) if host else None,
        given_host,
        Setting("host", EVERY_HOST, sign) if sign else None,
        Setting("host", DEFAULT_HOST, DEFAULT),
    ]
    ports = [
        Setting("port", str(port), COMMAND_LINE) if port is not None else None,
        check_port(bind_to_port),
        check_port(settings.get("port")),
        given_port,
        Setting("port", str(DEFAULT_PORT), DEFAULT),
    ]
    return Address(next(filter(None, hosts)), next(filter(None, ports)))


def choose_grpc_port(port: int | None, settings: Settings) -> Setting | None:
    """Return the port of gRPC; None if it is off. Raise ConfigurationError if it is invalid."""
    if port is not None:
        return Setting("grpc_port", str(port), COMMAND_LINE)
    return check_port(settings.get("grpc_port"))


def choose_management(settings: Settings, inference: Address) -> ListenAddress | None:
    """Return management's own address, if any. Raise ConfigurationError if it is invalid."""
    given = settings.get("management_address")
    if given is None:
        return None
    if given.value.lower().startswith(UNIX):
        path = given.value[len(UNIX) :]
        if len(os.fsencode(path)) > MAX_SOCKET_PATH or not Path(path).is_absolute():
            raise ConfigurationError(
                f"{given.source}: {given.name} must have an absolute path of at most {MAX_SOCKET_PATH} bytes after "
                f"{UNIX}. Given: {given.value}"
            )
        return ListenAddress(path=path)
    host, port = _parse(given)
    if (host.value, port.value) == (inference.host.value, inference.port.value) and port.value != FREE_PORT:
        return None  # the same address for both, as in DJLServing
    return ListenAddress(host.value, int(port.value), is_secure=is_https(given))


def is_https(given: Setting) -> bool:
    """Return whether an address requires TLS."""
    return given.value.lower().startswith("https:")


def _parse(given: Setting) -> tuple[Setting, Setting]:
    match = _ADDRESS.fullmatch(given.value)
    scheme = match["scheme"].lower() if match else ""
    if scheme == "unix":
        raise ConfigurationError(
            f"{given.source}: {given.name} asks for a Unix socket, which is not supported: give http://HOST:PORT. "
            f"Given: {given.value}"
        )
    if match is None or scheme not in DEFAULT_PORTS or not match["host"] or match["path"] not in (None, "/"):
        raise ConfigurationError(
            f"{given.source}: {given.name} must be http://HOST:PORT or https://HOST:PORT. Given: {given.value}"
        )
    port = check_port(given._replace(name="port", value=match["port"] or str(DEFAULT_PORTS[scheme])))
    assert port is not None
    return given._replace(name="host", value=match["host"].strip("[]")), port


def check_port(given: Setting | None) -> Setting | None:
    """Return the port. Raise ConfigurationError if it is invalid."""
    if given is not None and not (given.value.isdecimal() and int(given.value) <= MAX_PORT):
        raise ConfigurationError(
            f"{given.source}: the port must be an integer from 0 to {MAX_PORT}. Given: {given.value}"
        )
    return given
