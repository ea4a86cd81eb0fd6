"""A function in a child process, which the system kills if a call exceeds its CPU time."""

import importlib
import os
import pickle
import resource
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

MAX_MEMORY = 4 * 2**30  # bytes of address space


class CallFailedError(Exception):
    """The error of a function in a child process: its message, or its type without a message."""


class CallTooCostlyError(CallFailedError):
    """A call exceeds its time or memory."""


class Killable:
    """A function in child processes, one for each concurrent call, started on demand."""

    def __init__(self, factory: str, argument: Callable[[], str] = str) -> None:
        """`factory`, as `module:name`, is called in each process with the result of `argument`, and returns the
        function.
        """
        self._factory, self._argument = factory, argument
        self._idle: list[subprocess.Popen[bytes]] = []
        weakref.finalize(self, _end_all, self._idle)

    def call(self, seconds: float, *arguments: Any) -> Any:
        """Call the function and return its result. Raise CallFailedError, or CallTooCostlyError."""
        process = self._process()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((seconds, arguments), process.stdin)
            process.stdin.flush()
            result, error = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise CallTooCostlyError(_end(process, seconds)) from None
        except BaseException:  # as of an argument that cannot be pickled
            process.kill()
            _end(process, seconds)
            raise
        self._idle.append(process)
        if error is not None:
            raise (CallTooCostlyError if error == _no_memory() else CallFailedError)(error)
        return result

    def _process(self) -> "subprocess.Popen[bytes]":
        while self._idle:
            try:
                process = self._idle.pop()
            except IndexError:  # another thread has it
                break
            if process.poll() is None:
                return process
            _end(process, 0)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, self._factory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
            start_new_session=True,
        )
        assert process.stdin is not None
        pickle.dump(self._argument(), process.stdin)
        return process


def _end(process: "subprocess.Popen[bytes]", seconds: float) -> str:
    """Wait for a process to end, and return the reason."""
    for stream in (process.stdout, process.stdin):
        assert stream is not None
        try:
            stream.close()
        except OSError:  # there is no reader for what is left to be written
            continue
    code = process.wait()
    return f"it takes more than {seconds:g} seconds" if code == -signal.SIGPROF else _no_memory()


def _end_all(processes: "list[subprocess.Popen[bytes]]") -> None:
    for process in processes:
        process.kill()
        _end(process, 0)


def _no_memory() -> str:
    return f"it takes more than {MAX_MEMORY // 2**30} GiB of memory"


def serve() -> None:
    """Answer calls until the standard input ends."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    calls, answers = sys.stdin.buffer, sys.stdout.buffer
    module, name = sys.argv[1].split(":")
    function = getattr(importlib.import_module(module), name)(pickle.load(calls))
    while True:
        try:
            seconds, arguments = pickle.load(calls)
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, seconds)
        answer = _answer(function, arguments)
        signal.setitimer(signal.ITIMER_PROF, 0)
        pickle.dump(answer, answers)
        answers.flush()


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, str | None]:
    try:
        return function(*arguments), None
    except MemoryError:
        return None, _no_memory()
    except BaseException as error:  # Rust's panics too
        return None, str(error) or type(error).__name__


if __name__ == "__main__":
    serve()
