"""The messages between the server and the process of a model function."""

import msgspec

from lmi_core.workers.messages import LoadFailed, Started

OUT_OF_MEMORY = 507  # the status of a call whose function raised a MemoryError

Content = list[tuple[str | None, bytes]]


class Request(msgspec.Struct, array_like=True):
    properties: dict[str, str]
    content: Content


class Load(msgspec.Struct, tag=True):
    """The first message to a worker: the script to load, and its properties."""

    script: str
    function: str
    properties: dict[str, str]
    adapters: dict[str, Request]  # the registration request of each adapter, by name
    # Maximum requests in a rolling batch; None: the function is not a rolling batch
    rolling_batch_size: int | None = None
    content_type: str = "application/json"  # of rolling-batch answers for which the function sets none


class Handle(msgspec.Struct, tag=True):
    """One request, or a batch of requests, for a function of the script."""

    call_id: int
    function: str
    requests: list[Request]


class Cancel(msgspec.Struct, tag=True):
    """The cancellation of a call."""

    call_id: int


class Loaded(msgspec.Struct, tag=True):
    max_calls: int | None  # at the same time; None: unlimited
    failure: str | None = None  # traceback of the call without content, in which model functions load their models


class Head(msgspec.Struct, tag=True):
    """A whole answer or, for a stream, its status and headers."""

    call_id: int
    code: int
    headers: dict[str, str]
    content: Content
    streams: bool = False

    @property
    def body(self) -> bytes:
        """The content named `data`, or the first one."""
        return dict(reversed(self.content)).get("data", self.content[0][1]) if self.content else b""


class Chunk(msgspec.Struct, tag=True):
    call_id: int
    data: bytes


class Working(msgspec.Struct, tag=True):
    """A report that the function was called again for a request, with nothing to send yet."""

    call_id: int


class End(msgspec.Struct, tag=True):
    """The end of an answer, with an error if the function raised."""

    call_id: int
    error: str | None = None


ToWorker = Load | Handle | Cancel
Reply = Head | Chunk | End
FromWorker = Started | Loaded | LoadFailed | Head | Chunk | Working | End

decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode
