"""The messages of every worker, beside those of what it does."""

from typing import TypeVar

import msgspec

from lmi_core.errors import ConfigurationError, OutOfMemory

T = TypeVar("T")


class Started(msgspec.Struct, tag=True):
    """The first message of a worker: its process runs and reads messages."""


class Progress(msgspec.Struct, tag=True):
    """What the worker does to load its model, with the bytes of it if they are known."""

    what: str
    done: int | None = None
    total: int | None = None


class LoadFailed(msgspec.Struct, tag=True):
    """The last message of a worker that could not load: the model directory is at fault, or memory ran out."""

    message: str
    out_of_memory: bool = False

    @property
    def error(self) -> ConfigurationError:
        return (OutOfMemory if self.out_of_memory else ConfigurationError)(self.message)


class Ping(msgspec.Struct, tag=True):
    """A question that the worker answers with `Alive` as soon as it can."""


class Alive(msgspec.Struct, tag=True):
    """A sign of life: the answer to a ping, or, unasked, one from within long work."""


encode = msgspec.msgpack.Encoder().encode
STARTED, PING, ALIVE = encode(Started()), encode(Ping()), encode(Alive())
