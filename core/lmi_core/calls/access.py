"""The access to routes."""

from enum import StrEnum
from typing import NamedTuple


class Access(StrEnum):
    """A set of those who may use a route, with its own proof of who asks."""

    EVERYBODY = "everybody"  # whether the server or a model is ready, and files that are the same on every server
    CLIENTS = "clients"  # whoever has an API key, where there are any
    MONITORING = "monitoring"  # what collects metrics, which an option has show an API key
    # The page on which the server is managed: where `OPERATORS` may, but without the token, which that page asks for.
    CONSOLE = "console"
    OPERATORS = "operators"  # whoever manages the server: from this host, at the address or with the token for that


class Reach(NamedTuple):
    """What a client reaches at the address that it asks, if it has the credentials."""

    generates: bool = True  # the routes that ask models
    manages: bool = False  # the routes that manage the server
