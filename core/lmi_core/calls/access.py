"""The access to routes."""

from enum import StrEnum
from typing import NamedTuple


class Access(StrEnum):
    """The clients that may use a route, and how they authenticate."""

    EVERYBODY = "everybody"  # whether the server or a model is ready, and files that are the same on every server
    CLIENTS = "clients"  # whoever has an API key, where there are any
    MONITORING = "monitoring"  # what collects metrics, which an option has show an API key
    # The page on which the server is managed: where `OPERATORS` may, but without the token, which that page asks for.
    CONSOLE = "console"
    OPERATORS = "operators"  # whoever manages the server: from this host, at the address or with the token for that


class Reach(NamedTuple):
    """The routes that a client can reach at an address with the right credentials."""

    generates: bool = True  # the routes that ask models
    manages: bool = False  # the routes that manage the server
