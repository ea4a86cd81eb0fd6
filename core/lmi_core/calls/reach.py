"""The parts of a server that a client reaches."""

from typing import NamedTuple


class Reach(NamedTuple):
    """What a client reaches at the address that it asks, if it has the credentials."""

    generates: bool = True  # the routes that ask models
    manages: bool = False  # the routes that manage the server
