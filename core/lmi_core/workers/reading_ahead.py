"""Reading of weights before they are loaded, while libraries are imported and the disk would be idle."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from lmi_core.logs.loading_progress import Report

SUFFIXES = (".safetensors", ".bin", ".gguf", ".pt", ".pth")
CHUNK = 8 << 20  # bytes
MAX_SHARE = 0.5  # of free memory; with more, the first pages would be evicted before they are used
WHAT = "reading weights"


def weight_files(folder: Path) -> list[Path]:
    """Return the weights files in a model's folder, by name."""
    return sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES and file.is_file())


class ReadAhead:
    """A thread that reads a model's weights into the system's file cache and reports its progress."""

    def __init__(self, folder: Path, report: Report, available: int) -> None:
        """Read at most a share of the `available` bytes of memory."""
        self._files = weight_files(folder)
        self._report = report
        self._left = int(available * MAX_SHARE)
        self._stopped = threading.Event()
        self.total = sum(file.stat().st_size for file in self._files)
        self.done = 0

    def read(self) -> None:
        """Read all files, until `stop` is called or memory runs short."""
        self._report(WHAT, 0, self.total)
        for data in self._chunks():
            self.done += data
            self._report(WHAT, self.done, self.total)
            if self._stopped.is_set() or self.done >= self._left:
                return

    def stop(self) -> None:
        self._stopped.set()

    def _chunks(self) -> Iterator[int]:
        buffer = bytearray(CHUNK)
        for path in self._files:
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    yield count


@contextlib.contextmanager
def reading_ahead(folder: Path, report: Report, available: int, after: Callable[[], None]) -> Iterator[None]:
    """Read the weights of a folder on this host in a thread while the body runs; ignore other sources.

    `after` is called after the thread's last report, so that the body's own progress can be reported again.
    """
    if not folder.is_dir():
        yield
        return
    ahead = ReadAhead(folder, report, available)

    def run() -> None:
        with contextlib.suppress(OSError):  # loading the weights reports it better
            ahead.read()
        after()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ahead.stop()
        thread.join()
