"""What the server and the process of a model function say to each other."""

import msgspec

Content = list[tuple[str | None, bytes]]


class Request(msgspec.Struct, array_like=True):
    properties: dict[str, str]
    content: Content


class Load(msgspec.Struct, tag=True):
    """What the worker is told first, and once."""

    script: str
    function: str
    properties: dict[str, str]
    adapters: dict[str, Request]  # by name: what each is registered with
    rolling_batch_size: int | None = None  # most requests in a rolling batch; None: the function is not of that form
    content_type: str = "application/json"  # of answers in a rolling batch for which the function sets none


class Handle(msgspec.Struct, tag=True):
    """One request, or a batch of them, for a function of the script."""

    call_id: int
    function: str
    requests: list[Request]


class Cancel(msgspec.Struct, tag=True):
    """Word that nobody waits for an answer any more."""

    call_id: int


class Started(msgspec.Struct, tag=True):
    """The worker's word that its process runs and reads."""


class Loaded(msgspec.Struct, tag=True):
    max_calls: int | None  # at the same time; None: any number
    functions: list[str]
    failure: str | None = None  # of the call without content, in which model functions load their models: its traceback


class LoadFailed(msgspec.Struct, tag=True):
    """The model directory is at fault; the worker ends."""

    message: str


class Head(msgspec.Struct, tag=True):
    """An answer, or, if it streams, how it begins."""

    call_id: int
    code: int
    headers: dict[str, str]
    content: Content
    streams: bool = False

    @property
    def body(self) -> bytes:
        """The content of the name `data`, or the first."""
        return dict(reversed(self.content)).get("data", self.content[0][1]) if self.content else b""


class Chunk(msgspec.Struct, tag=True):
    call_id: int
    data: bytes


class Working(msgspec.Struct, tag=True):
    """A sign of life: the function was called for that request again, and there is nothing to send yet."""

    call_id: int


class End(msgspec.Struct, tag=True):
    """The end of an answer; with an error if the function raised."""

    call_id: int
    error: str | None = None


ToWorker = Load | Handle | Cancel
Reply = Head | Chunk | End
FromWorker = Started | Loaded | LoadFailed | Head | Chunk | Working | End

encode = msgspec.msgpack.Encoder().encode
decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode
