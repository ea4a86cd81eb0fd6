"""The messages between the server and the actor that runs vLLM's core, in addition to vLLM's own."""

from typing import TypeAlias

import msgspec

from lmi_core.workers.channel import Keys
from lmi_core.workers.messages import Alive, LoadFailed, Progress, Started


class LoadCore(msgspec.Struct, tag=True):
    """The first message to the actor: the core to start, and the address and keys for its sockets."""

    version: str  # of vLLM, whose messages differ between versions
    arguments: dict[str, str]  # of vLLM's engine, as text, with folders of the actor's node
    model: str | None  # its name in log lines and metrics
    address: str  # where the core reports to the server
    keys: Keys
    share: float = 1.0  # of a node's free main memory, for a core without GPU


class EndCore(msgspec.Struct, tag=True):
    """End the core: it frees its resources or, if it `is_frozen`, is killed."""

    is_frozen: bool = False


class AskComputes(msgspec.Struct, tag=True):
    """A question, answered with `Computes`."""


class CoreStarted(msgspec.Struct, tag=True):
    """The core's process has started; it loads the model, and reports that to vLLM's client itself."""


class Computes(msgspec.Struct, tag=True):
    """Whether the core's workers have computed since the last question."""

    value: bool


class CoreEnded(msgspec.Struct, tag=True):
    """The core has ended."""

    cause: str


ToCore: TypeAlias = LoadCore | EndCore | AskComputes
FromCore: TypeAlias = Started | Progress | LoadFailed | CoreStarted | Computes | CoreEnded | Alive
decode_to_core = msgspec.msgpack.Decoder(ToCore).decode
decode_from_core = msgspec.msgpack.Decoder(FromCore).decode
