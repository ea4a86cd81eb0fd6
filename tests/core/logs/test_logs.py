import errno
import io
import os
import subprocess
import sys

from lmi_core.logs.logs import LogThread

FLOOD = """
import logging, sys
from lmi_core.logs.logs import configure_logging
configure_logging("info")
for number in range(30_000):
    logging.info("line %d %s", number, "x" * 100)
print("done", flush=True)
sys.stdin.read()
"""


def test_nobody_reads() -> None:
    """More lines than a pipe and the queue hold stop nobody; once they are read, the loss is told."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", FLOOD], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "done\n"
        lines = [process.stderr.readline() for _ in range(8000)]
        process.stdin.close()
        lines += process.stderr.readlines()
    assert process.returncode == 0
    assert "line 0 " in lines[0]
    told = [line.partition("WARNING log: ")[2] for line in lines if "nothing read" in line]
    assert told  # more than once where the queue was full before the pipe was
    assert len(lines) - len(told) + sum(int(line.split()[0]) for line in told) == 30_000


def test_lines_are_written_in_order_and_flushed() -> None:
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "w") as stream:
        thread = LogThread(stream)
        for number in range(100):
            thread.write(str(number))
        thread.close()
    with os.fdopen(ours) as written:
        assert written.read().split() == [str(number) for number in range(100)]


class Disk(io.StringIO):
    """A log file on a disk that may be full."""

    is_full = False

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_all_lines_that_a_full_disk_lost_are_counted() -> None:
    disk = Disk()
    thread = LogThread(disk)
    thread.write("first")
    thread.flush()
    disk.is_full = True
    for number in range(3):
        thread.write(str(number))
        thread.flush()
    disk.is_full = False
    thread.write("last")
    thread.close()
    first, _, last, told = disk.getvalue().splitlines()
    assert (first, last) == ("first", "last")
    assert "WARNING log: 3 lines were dropped, because " in told


def test_an_exception_is_logged_with_its_traceback() -> None:
    script = (
        "import logging\nfrom lmi_core.logs.logs import configure_logging\nconfigure_logging('info')\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.exception('broken %s', 'sum')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "ERROR   root: broken sum\n    Traceback (most recent call last):" in done.stderr
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_a_library_that_configures_its_own_log() -> None:
    """Configuring any log by a dictionary closes all handlers, which go on being used."""
    script = (
        "import logging.config\nfrom lmi_core.logs.logs import configure_logging\nconfigure_logging('info')\n"
        "logging.info('before')\n"
        "logging.config.dictConfig({'version': 1, 'disable_existing_loggers': False})\nlogging.info('after')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == ["before", "after"]
