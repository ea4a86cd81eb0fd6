"""The access to routes."""

from enum import StrEnum
from typing import NamedTuple


class Access(StrEnum):
    """The clients that may use a route, and how they authenticate."""

    EVERYBODY = "everybody"  # readiness of the server and its models, and files that are the same on every server
    CLIENTS = "clients"  # any client with an API key, if keys are configured
    MONITORING = "monitoring"  # metrics; an option can require an API key for them
    # The page for managing the server: like `OPERATORS`, but without the token, which the page itself asks for.
    CONSOLE = "console"
    OPERATORS = "operators"  # clients that manage the server, by their host, address or token


class Reach(NamedTuple):
    """The routes that a client can reach at an address with the right credentials."""

    generates: bool = True  # routes that use models
    manages: bool = False  # routes that manage the server
