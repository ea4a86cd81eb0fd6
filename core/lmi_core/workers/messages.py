"""The messages common to every worker."""

from typing import Self

import msgspec

from lmi_core.errors import ConfigurationError, OutOfMemory
from lmi_core.host.out_of_memory import is_out_of_memory


class Started(msgspec.Struct, tag=True):
    """The first message of a worker: its process is running and reads messages."""


class Progress(msgspec.Struct, tag=True):
    """The worker's current stage of loading its model, with its bytes if known."""

    what: str
    done: int | None = None
    total: int | None = None


class LoadFailed(msgspec.Struct, tag=True):
    """The last message of a worker that could not load: the model directory is at fault, or memory ran out."""

    message: str
    out_of_memory: bool = False

    @classmethod
    def because_of(cls, error: Exception, model: str) -> Self:
        """Return the message for an error; all except ConfigurationErrors come from the model's code or its device"""
        if isinstance(error, ConfigurationError):
            return cls(error.message, isinstance(error, OutOfMemory))
        reason = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
        return cls(f"{model}: the model cannot be loaded: {reason}", is_out_of_memory(error))

    @property
    def error(self) -> ConfigurationError:
        return (OutOfMemory if self.out_of_memory else ConfigurationError)(self.message)


class Ping(msgspec.Struct, tag=True):
    """A ping that the worker answers with `Alive` as soon as it can."""


class Alive(msgspec.Struct, tag=True):
    """A sign of life: the answer to a ping, or an unsolicited one during long work."""


encode = msgspec.msgpack.Encoder().encode
STARTED, PING, ALIVE = encode(Started()), encode(Ping()), encode(Alive())
