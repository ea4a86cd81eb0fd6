"""The server's side of copies on other nodes: answers to the requests of the worker there."""

import asyncio
import hashlib
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from lmi_core.errors import BackendUnhealthy, ConfigurationError, InvalidAdapter
from lmi_core.logs.loading_progress import Report, unheard
from lmi_core.remote.copies import CopiedFile
from lmi_core.remote.fetching import follow
from lmi_core.remote.nodes.listing import describe_file, list_files
from lmi_core.remote.nodes.messages import CHUNK, Bring, Chunk, Copied, FromNode, Gone, Next, decode_from_node
from lmi_core.remote.progress import COPIED, DownloadProgress
from lmi_core.remote.report import Failed, Message, Note
from lmi_core.workers.conversation import Conversation, Transport, WorkerDied
from lmi_core.workers.messages import encode

RECEIVING = "lmi_core.remote.nodes.receiving:run"  # the receiver, in the worker's process


class NodeFiles:
    """Folders for a worker on another node, copied to that node if they are missing there."""

    def __init__(self, node: str, transport: Transport) -> None:
        self._node = node
        self._transport = transport
        self._turn = asyncio.Lock()
        self._is_connected = False

    @classmethod
    def of(cls, worker: Conversation[Any]) -> Self | None:
        """Return the files of a worker that has started; None if it is on this host."""
        place, files = worker.endpoint.place, worker.endpoint.files
        return None if place is None or files is None else cls(place.node, files)

    async def bring(self, folder: Path, report: Report) -> Path:
        """Return the path of a folder on the worker's node, after copying it; the worker holds it until it exits.

        Raise ConfigurationError if it cannot be copied, or WorkerDied if the worker has ended. If this is cancelled, a
        copy that has started is completed.
        """
        return await asyncio.shield(self._bring(folder.absolute(), report))

    async def bring_adapter(self, folder: Path) -> Path:
        """Return the path of an adapter's folder like `bring`; a missing one is left to the engine.

        Raise InvalidAdapter if it cannot be copied, or BackendUnhealthy if the worker has ended.
        """
        try:
            return await self.bring(folder, unheard) if folder.is_dir() else folder
        except ConfigurationError as error:
            raise InvalidAdapter(error.message) from None
        except WorkerDied as death:
            raise BackendUnhealthy(str(death)) from None

    async def _bring(self, folder: Path, report: Report) -> Path:
        async with self._turn:
            if not self._is_connected:
                await self._transport.receive()  # Started
                self._is_connected = True
            try:
                files, skipped = await asyncio.to_thread(list_files, folder)
                self._send(Bring(socket.gethostname(), str(folder), files, skipped))
            except OSError as error:
                raise ConfigurationError(f"{folder} cannot be read: {error.strerror or error}") from None
            except UnicodeEncodeError as error:
                name = error.object.encode(errors="backslashreplace").decode()
                raise ConfigurationError(f"{folder} cannot be copied: {name} is not valid UTF-8") from None
            chunks = {each.path: _chunks(folder, each) for each in files}
            progress = DownloadProgress(f"{folder} for node {self._node}", report, COPIED)
            return await follow(lambda: self._next(chunks), progress)

    async def _next(self, chunks: Mapping[str, Iterator[Chunk]]) -> Message:
        """Return the next report, answering requests before it."""
        while True:
            message: FromNode = decode_from_node(await self._transport.receive())
            if isinstance(message, Next):
                self._send(await asyncio.to_thread(next, chunks[message.path], Chunk(b"")))  # the latter after an error
            elif isinstance(message, Copied):
                self._send(Gone(await asyncio.to_thread(_missing_folders, message.folders)))
            elif isinstance(message, Failed):
                return Failed(f"node {self._node}: {message.message}")
            elif isinstance(message, Note):
                return Note(f"node {self._node}: {message.text}", message.level)
            else:
                return message

    def _send(self, message: msgspec.Struct) -> None:
        self._transport.send(encode(message))


def _chunks(folder: Path, file: CopiedFile) -> Iterator[Chunk]:
    """Yield the chunks of a file, or an error as the last one."""
    path, digest = folder / file.path, hashlib.sha256()
    try:
        with path.open("rb") as opened:
            while True:
                data = opened.read(CHUNK)
                digest.update(data)
                if len(data) < CHUNK or opened.tell() >= file.size:
                    break
                yield Chunk(data)
        is_changed = describe_file(folder, path) != file
    except OSError as error:
        yield Chunk(b"", error=f"{path} cannot be read: {error.strerror or error}")
        return
    yield Chunk(b"", error=f"{path} changed while it was copied") if is_changed else Chunk(data, digest.hexdigest())


def _missing_folders(folders: Sequence[str]) -> list[str]:
    return [folder for folder in folders if not Path(folder).is_dir()]
