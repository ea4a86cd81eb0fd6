"""The endpoint of a worker, on this machine or elsewhere."""

from typing import NamedTuple, Protocol

from lmi_core.errors import ConfigurationError, OutOfMemory


class Place(NamedTuple):
    """A process on another machine."""

    node: str  # the node's address
    process_id: int


class WorkerDied(Exception):
    """The worker has exited, or is unreachable."""

    def __init__(self, why: str, *, out_of_memory: bool = False) -> None:
        super().__init__(f"{why}, as if killed by the system for lack of memory" if out_of_memory else why)
        self.out_of_memory = out_of_memory

    def while_loading(self, what: str) -> ConfigurationError:
        """Return the error for a worker that died while loading its model; its message starts with `what`."""
        if self.out_of_memory:
            return OutOfMemory(f"{what}: {self}")
        return ConfigurationError(f"{what}: {self}; its log above says why")


class Transport(Protocol):
    """The transport of whole messages to a worker and back."""

    def send(self, message: bytes) -> None:
        """Send a message without waiting, after the worker has sent one: the model's queue limits those in flight."""

    async def receive(self) -> bytes:
        """Return the next message. Raise WorkerDied when the worker has exited and every message has been read."""


class Endpoint(Transport, Protocol):
    """One worker, and the messages to it and back."""

    async def start(self) -> None:
        """Start the worker, unless it is running."""

    def kill(self) -> None:
        """Kill the worker, even if it is stopped; `receive` then raises WorkerDied."""

    async def stop(self) -> None:
        """End the worker and free its resources; call it again if it was cancelled."""

    @property
    def place(self) -> Place | None:
        """The worker's process, if it is on another machine."""

    @property
    def files(self) -> Transport | None:
        """A separate transport for the files that the worker reads, if it is on another machine."""

    @property
    def process_id(self) -> int | None:
        """The worker's process id, for monitoring; None if it has none on this machine."""
