"""Child processes that are created and awaited in a thread, because both would block an event loop.

A fork copies the memory tables of a process, and blocks until the child runs its program: tens of milliseconds for a
large server, or on busy processors. `subprocess` does not copy, and only its thread waits.
"""

import asyncio
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import IO, Protocol

import psutil

from lmi_core.host.processes import descendants, end_session
from lmi_core.logs.logs import error_stream_of_children


class StartedProcess(Protocol):
    """The interface of `subprocess.Popen` that is used here."""

    @property
    def pid(self) -> int: ...

    @property
    def stdin(self) -> IO[bytes] | None: ...

    @property
    def returncode(self) -> int | None: ...

    def kill(self) -> None: ...

    def wait(self) -> int: ...


class ChildProcess:
    """A running child process in its own session, for the event loop that has started it.

    All processes that it has started are ended with it.
    """

    def __init__(self, process: StartedProcess, exited: asyncio.Future[int], ended: asyncio.Future[None]) -> None:
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        self._process = process
        self._stdin: IO[bytes] = process.stdin
        self.exited = exited  # with the exit code, which is negative for a signal; never cancelled
        self.ended = ended  # when all descendants have ended, too
        self._descendants = set[psutil.Process]()  # noted early: later those in other sessions are lost

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, message: bytes) -> None:
        """Write to the child's standard input, without waiting; the message is lost if the child does not read or
        has ended.
        """
        with suppress(OSError, ValueError):  # ValueError: already closed
            self._stdin.write(message)

    async def wait(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        return await asyncio.shield(self.exited)

    def close(self) -> None:
        """Close the standard input, which makes the process exit."""
        self._note_descendants()
        self._stdin.close()

    def kill(self) -> None:
        """End the process at once, if it has not ended."""
        self._note_descendants()
        self._process.kill()

    def end_descendants(self) -> None:
        """End the processes that the ended process has left behind. This blocks only briefly."""
        end_session(self.pid, self._descendants)

    def _note_descendants(self) -> None:
        if self._process.returncode is None:
            self._descendants |= descendants(self.pid)


def execute(command: Sequence[str], environment: Mapping[str, str]) -> StartedProcess:
    """Start a process with a pipe for its standard input. Raise OSError if it cannot be started."""
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stderr=error_stream_of_children(),
        bufsize=0,
        start_new_session=True,
    )


async def start_process(create: Callable[[], StartedProcess]) -> ChildProcess:
    """Start a child process, which `create` returns, with a pipe for its standard input.

    Raise the exceptions of `create`. Cancelling this leaves no process behind.
    """
    loop = asyncio.get_running_loop()
    created: asyncio.Future[ChildProcess] = loop.create_future()
    exited: asyncio.Future[int] = loop.create_future()
    ended: asyncio.Future[None] = loop.create_future()
    Thread(target=_create_and_wait, args=(loop, create, created, exited, ended), daemon=True).start()
    try:
        return await asyncio.shield(created)
    except asyncio.CancelledError:
        created.add_done_callback(_kill)
        raise


def _create_and_wait(
    loop: asyncio.AbstractEventLoop,
    create: Callable[[], StartedProcess],
    created: asyncio.Future[ChildProcess],
    exited: asyncio.Future[int],
    ended: asyncio.Future[None],
) -> None:
    try:
        process = create()
        child = ChildProcess(process, exited, ended)
    except Exception as error:  # passed on by a future
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(created.set_exception, error)
        return
    try:
        loop.call_soon_threadsafe(created.set_result, child)
    except RuntimeError:  # the event loop was closed in the meantime
        child.kill()
        child.close()
    code = process.wait()
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(exited.set_result, code)
    child.end_descendants()
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(ended.set_result, None)


def _kill(created: asyncio.Future[ChildProcess]) -> None:
    """End an abandoned process."""
    if created.exception() is None:
        created.result().kill()
        created.result().close()
