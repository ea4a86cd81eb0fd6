"""The download of one file from a web server, which resumes after existing bytes."""

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec

from lmi_core.configuration.location import without_secrets
from lmi_core.errors import ConfigurationError
from lmi_core.remote.archives.unpacking import START, Limits, recognise
from lmi_core.remote.copies import file_size
from lmi_core.remote.errors import Unreachable
from lmi_core.remote.report import Report
from lmi_core.remote.space import check_space
from lmi_core.remote.web.requests import BROKEN, NOT_SATISFIABLE, PARTIAL, Answer, Validators, reason, request

TRIES = 4  # in a row with few bytes or none
MIN_PAUSE = 0.1  # seconds
MAX_PAUSE = 2.0
RATE_SECONDS = 60.0
MIN_BYTES = 60 * 1024  # in RATE_SECONDS; a slower server counts as one that sends nothing


class Download:
    """The download of one URL to a file, which may be there in part from an earlier attempt."""

    def __init__(self, url: str, folder: Path, limits: Limits, report: Report) -> None:
        self.path = folder / "archive"
        self._url = url
        self._limits = limits
        self._report = report
        self._known_by = Validators("", "", None)  # of the whole file
        self._known_by_path = folder / "known_by.json"
        with suppress(OSError, msgspec.DecodeError):
            self._known_by = msgspec.json.decode(self._known_by_path.read_bytes(), type=Validators)

    def _size(self) -> int:
        return file_size(self.path) or 0

    def _start_over(self, validators: Validators) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        self._known_by_path.write_bytes(msgspec.json.encode(validators))
        self.path.touch()
        self._known_by = validators

    async def open(self) -> Answer:
        """Request the missing part, and return the answer. Raise ConfigurationError or Unreachable."""
        size, strong = self._size(), self._known_by.strong
        if not size or strong is None:
            return await request(self._url, {})
        answer = await request(self._url, {"Range": f"bytes={size}-", "If-Range": strong})
        if answer.status == NOT_SATISFIABLE or (answer.status == PARTIAL and not self._goes_on(answer, size)):
            await answer.close()
            return await request(self._url, {})
        return answer

    def _goes_on(self, answer: Answer, size: int) -> bool:
        """Return whether the answer is the rest of the same file; some servers ignore If-Range."""
        known, found = self._known_by, answer.validators
        same = all(new in ("", old) for old, new in ((known.etag, found.etag), (known.modified, found.modified)))
        return same and answer.start() == size and found.size == known.size

    async def run(self, answer: Answer) -> Validators:
        """Read an answer, and resume with further requests if it is interrupted, until the whole file is on the disk.

        Return the file's validators. Raise ConfigurationError for a permanent failure, Unreachable if a later attempt
        may succeed, or OSError from the disk.
        """
        size = answer.validators.size
        if answer.status != PARTIAL:
            self._start_over(answer.validators)
        done = self._size()
        self._limits.check(size or 0, 0, size or 0)
        if size is not None:
            check_space(without_secrets(self._url), self.path.parent, size - done)
        self._report.begin(size, done, 0, self.path.parents[1])
        failures = 0
        current: Answer | None = answer
        while True:
            before = self._size()
            try:
                current = current or await self.open()
                await self._read(current)
            except (_ConnectionLost, Unreachable) as error:
                gone_on = self._size() > before and not isinstance(error, _TooSlow)
                failures = 0 if gone_on else failures + 1
                if failures == TRIES and isinstance(error, Unreachable):
                    raise
                if failures == TRIES:
                    shown = without_secrets(self._url)
                    interruption = f"the connection was interrupted ({error})"
                    raise Unreachable(f"{shown}: {interruption}: start again to resume") from error
            else:
                return self._known_by
            finally:
                if current is not None:
                    await current.close()
                current = None
            await asyncio.sleep(min(MAX_PAUSE, MIN_PAUSE * 2**failures))

    async def _read(self, answer: Answer) -> None:
        if answer.status != PARTIAL and self._size():  # the file has changed, or the server does not send parts
            self._start_over(answer.validators)
        size = answer.validators.size
        with self.path.open("ab") as file:
            async for data in _pieces(answer):
                file.write(data)
                file.flush()
                done = file.tell()
                self._limits.check(done, 0, done)
                if done - len(data) < START <= done or done == size:
                    self._check_start()
                self._report.progress(done)
            if size is not None and file.tell() < size:
                raise _ConnectionLost(f"received {file.tell()} of {size} bytes")
            os.fsync(file.fileno())

    def _check_start(self) -> None:
        with self.path.open("rb") as file:
            start = file.read(START)
        try:
            recognise(start)
        except ConfigurationError as error:
            self.path.unlink()
            raise ConfigurationError(f"{without_secrets(self._url)}: {error.message}") from None


class _ConnectionLost(Exception):
    """The connection ended before the file did."""


class _TooSlow(_ConnectionLost):
    """The server sends too slowly for the download to end."""


async def _pieces(answer: Answer) -> AsyncIterator[bytes]:
    since, came = time.monotonic(), 0
    try:
        async for data in answer.pieces():
            yield data
            came += len(data)
            if time.monotonic() - since >= RATE_SECONDS:
                if came < MIN_BYTES:
                    raise _TooSlow(f"received {came} bytes in {RATE_SECONDS:.0f} seconds")
                since, came = time.monotonic(), 0
    except BROKEN as error:
        raise _ConnectionLost(reason(error)) from error


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
