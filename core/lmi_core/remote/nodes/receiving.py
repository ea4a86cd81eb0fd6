"""The worker's side of copies on its node, in a thread next to the engine."""

import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from lmi_core.configuration.cache import download_folder
from lmi_core.errors import ConfigurationError
from lmi_core.remote import locks
from lmi_core.remote.copies import CopiedFile, Copies, ServerFolder, server_folders
from lmi_core.remote.held_copies import HeldCopies, hold, release_copy
from lmi_core.remote.nodes.listing import describe_file
from lmi_core.remote.nodes.messages import AT_ONCE, CHUNK, Bring, Chunk, Copied, Gone, Next, decode_to_node
from lmi_core.remote.report import Failed, Finished, Report
from lmi_core.remote.space import explain
from lmi_core.remote.updating import update
from lmi_core.workers.channel import Channel
from lmi_core.workers.messages import STARTED, encode

UNFINISHED = ".download"
EMPTY = hashlib.sha256().hexdigest()


def run(channel: Channel) -> None:
    """Copy the folders that the server names, while the worker lives: a worker's `files` target."""
    channel.send(STARTED)
    held = HeldCopies()
    while True:
        bring = decode_to_node(channel.receive())
        assert isinstance(bring, Bring), bring
        downloads = download_folder(os.environ)
        report = Report(channel.send)
        try:
            folder = Receiver(channel, bring, downloads, report).folder()
            held.keep(bring.folder, folder)  # replaces an older version
            release_copy(folder)
        except ConfigurationError as error:
            report.write(Failed(error.message))
        except OSError as error:
            report.write(Failed(explain(error, bring.folder, downloads)))
        else:
            report.write(Finished(str(folder)))


class Receiver:
    """The copying of one folder."""

    def __init__(self, channel: Channel, bring: Bring, downloads: Path, report: Report) -> None:
        self._channel = channel
        self._bring = bring
        self._downloads = downloads
        self._report = report
        self._copies = Copies(ServerFolder(bring.host, bring.folder), downloads)
        self._awaited = 0  # in chunks

    def folder(self) -> Path:
        """Return the folder itself if this node has the same files there, otherwise the folder of a copy, which is
        held.

        Raise ConfigurationError if it cannot be copied, or OSError from the disk.
        """
        bring, here = self._bring, Path(self._bring.folder)
        with suppress(OSError):  # the same path, as on a shared file system
            if all(describe_file(here, here / each.path) == each for each in bring.files):
                return here
        waiting = f"{bring.folder} is already being copied to this node: waiting for it"
        with locks.exclusive(self._copies.lock, lambda: self._report.note(waiting, logging.INFO)):
            self._remove_gone()
            files, skipped = bring.files, bring.skipped
            try:
                folder = update(bring.folder, self._copies, files, skipped, self._report, self._transfer)
            finally:
                while self._awaited:  # discard the rest of a file that could not be written
                    self._chunk()
            hold(folder)
            return folder

    def _remove_gone(self) -> None:
        """Remove copies of folders that the server's host no longer has, unless they are in use."""
        self._send(Copied(server_folders(self._bring.host, self._downloads)))
        gone = decode_to_node(self._channel.receive())
        assert isinstance(gone, Gone), gone
        for folder in gone.folders:
            copies = Copies(ServerFolder(self._bring.host, folder), self._downloads)
            with locks.try_exclusive(copies.lock) as free:
                if free:
                    copies.remove()

    def _transfer(self, files: Sequence[CopiedFile], progress: Callable[[int], None]) -> None:
        partial, done = self._copies.partial, 0
        partial.mkdir(parents=True, exist_ok=True)
        for each in files:
            unfinished = partial / f"{each.identity}{UNFINISHED}"
            with unfinished.open("wb") as file:
                for count in self._chunks(each, file):
                    done += count
                    progress(done)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(partial / each.identity)

    def _chunks(self, each: CopiedFile, file: BinaryIO) -> Iterator[int]:
        """Write a file as it arrives, and yield the bytes of each chunk. Raise ConfigurationError if it is damaged."""
        count, digest, last = -(-each.size // CHUNK), hashlib.sha256(), Chunk(b"", digest=EMPTY)
        for _ in range(min(AT_ONCE, count)):
            self._request(each.path)
        for left in range(count, 0, -1):
            last = self._chunk()
            if last.error:
                raise ConfigurationError(last.error)
            if left > AT_ONCE:
                self._request(each.path)
            file.write(last.data)
            digest.update(last.data)
            yield len(last.data)
        if last.digest != digest.hexdigest():
            raise ConfigurationError(f"{self._bring.folder}/{each.path} arrived damaged: its SHA-256 differs")

    def _request(self, path: str) -> None:
        self._send(Next(path))
        self._awaited += 1

    def _chunk(self) -> Chunk:
        chunk = decode_to_node(self._channel.receive())
        assert isinstance(chunk, Chunk), chunk
        self._awaited -= 1
        return chunk

    def _send(self, message: msgspec.Struct) -> None:
        self._channel.send(encode(message))
