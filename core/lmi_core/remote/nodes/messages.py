"""The messages between a server and a worker on another node, which copies folders of the server's host."""

from collections.abc import Sequence

import msgspec

from lmi_core.remote.copies import CopiedFile
from lmi_core.remote.report import Begin, Failed, Finished, Note, Progress
from lmi_core.workers.messages import Started

CHUNK = 1 << 20  # bytes of a file in one message
AT_ONCE = 4  # chunks that a node requests before it has written the first


class Bring(msgspec.Struct, tag=True, frozen=True):
    """A folder that the worker is about to read."""

    host: str  # the server's host
    folder: str
    files: Sequence[CopiedFile]
    skipped: int  # bytes of other files


class Gone(msgspec.Struct, tag=True, frozen=True):
    """The folders in the node's `Copied` that no longer exist on the server's host."""

    folders: Sequence[str]


class Chunk(msgspec.Struct, tag=True, frozen=True):
    """The next bytes of a file, with its SHA-256 in the last chunk, or an error if the file cannot be read."""

    data: bytes
    digest: str = ""
    error: str = ""


class Copied(msgspec.Struct, tag=True, frozen=True):
    """The folders that the node has copies of."""

    folders: Sequence[str]


class Next(msgspec.Struct, tag=True, frozen=True):
    """A request for the next chunk of a file in the folder; files are read one at a time, from the start."""

    path: str


FromNode = Started | Begin | Progress | Note | Finished | Failed | Copied | Next
decode_to_node = msgspec.msgpack.Decoder(Bring | Gone | Chunk).decode
decode_from_node = msgspec.msgpack.Decoder(FromNode).decode
