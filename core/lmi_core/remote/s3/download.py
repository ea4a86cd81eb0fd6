"""Concurrent download of objects in parts."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lmi_core.errors import ConfigurationError
from lmi_core.remote.errors import Cancelled, ChangedMeanwhile
from lmi_core.remote.s3.client import is_temporary
from lmi_core.remote.s3.objects import StoredObject
from lmi_core.remote.s3.partial_file import Part, PartialFile, missing_bytes

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

PART_SIZE = 8 * 1024 * 1024
THREADS = 16
CHUNK = 1024 * 1024
OPEN_FILES = 64  # objects in progress at a time
TRIES = 4  # attempts in a row without a byte of a part
MIN_PAUSE = 0.1  # seconds
MAX_PAUSE = 2.0
REPORT_SECONDS = 0.2
GONE = ("PreconditionFailed", "412", "NoSuchKey", "404")


class _Task(NamedTuple):
    object: StoredObject
    file: PartialFile
    part: Part


def open_partial(folder: Path, each: StoredObject) -> PartialFile:
    """Open an object's file in the folder of partial files."""
    return PartialFile(folder / each.identity, each.size, PART_SIZE)


def bytes_missing(folder: Path, objects: Sequence[StoredObject]) -> int:
    """Return how many bytes of the objects are not on disk yet."""
    return sum(missing_bytes(folder / each.identity, each.size, PART_SIZE) for each in objects)


class Download:
    """One download, whose daemon threads end with the process."""

    def __init__(self, client: "S3Client", bucket: str, folder: Path) -> None:
        self._client = client
        self._bucket = bucket
        self._folder = folder
        self._tasks: queue.Queue[_Task | None] = queue.Queue()
        self._results: queue.Queue[BaseException | None] = queue.Queue()
        self._stopped = threading.Event()
        self._count = threading.Lock()
        self.done = 0  # bytes

    def run(self, objects: Sequence[StoredObject], report: Callable[[int], None]) -> None:
        """Download every object to a file of the folder, calling `report` with the number of bytes so far.

        Raise ChangedMeanwhile where an object changes, OSError from the disk, or boto3's errors.
        """
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        try:
            largest_first = sorted(objects, key=lambda each: -each.size)
            for start in range(0, len(largest_first), OPEN_FILES):
                self._run_some(largest_first[start : start + OPEN_FILES], report)
        finally:
            self._stopped.set()
            for _ in threads:
                self._tasks.put(None)

    def _run_some(self, objects: Sequence[StoredObject], report: Callable[[int], None]) -> None:
        with ExitStack() as stack:
            files = [(each, stack.enter_context(open_partial(self._folder, each))) for each in objects]
            tasks = [_Task(each, file, part) for each, file in files for part in file.missing()]
            for task in tasks:
                self._tasks.put(task)
            try:
                self._wait(len(tasks), report)
            except BaseException:
                self._stopped.set()
                stack.pop_all()  # threads still writing must not find another file under the descriptor
                raise
            for _, file in files:
                file.complete()

    def _wait(self, tasks: int, report: Callable[[int], None]) -> None:
        while tasks:
            report(self.done)
            with suppress(queue.Empty):
                failure = self._results.get(timeout=REPORT_SECONDS)
                if failure is not None:
                    raise failure
                tasks -= 1
        report(self.done)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None and not self._stopped.is_set():
            try:
                self._fetch(task)
            except Cancelled:
                return
            except BaseException as error:
                self._results.put(error)
            else:
                self._results.put(None)

    def _fetch(self, task: _Task) -> None:
        """Download a part, resuming where the connection breaks."""
        offset, failures = task.part.start, 0
        while offset < task.part.end:
            before = offset
            try:
                for data in self._chunks(task, offset):
                    task.file.write(data, offset)
                    offset += len(data)
                    self._add(len(data))
            except Exception as error:
                failures = 0 if offset > before else failures + 1
                if failures == TRIES or not is_temporary(error):
                    raise
                self._stopped.wait(min(MAX_PAUSE, MIN_PAUSE * 2**failures))
        task.file.finish(task.part)

    def _chunks(self, task: _Task, offset: int) -> Iterator[bytes]:
        """Yield the part's bytes from `offset` on. Raise ChangedMeanwhile for a changed object, or boto3's errors."""
        from botocore.exceptions import ClientError

        wanted = task.part.end - offset
        each = task.object
        try:
            answer = self._client.get_object(
                Bucket=self._bucket,
                Key=each.key,
                IfMatch=each.etag,
                Range=f"bytes={offset}-{task.part.end - 1}",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] in GONE:
                raise ChangedMeanwhile(each.key) from error
            raise
        if answer["ContentLength"] != wanted:
            raise ConfigurationError(
                f"the server of {each.key} answered a request for {wanted} bytes with {answer['ContentLength']}: it "
                "must support range requests"
            )
        for data in answer["Body"].iter_chunks(CHUNK):
            if self._stopped.is_set():
                raise Cancelled
            yield data

    def _add(self, size: int) -> None:
        with self._count:
            self.done += size
