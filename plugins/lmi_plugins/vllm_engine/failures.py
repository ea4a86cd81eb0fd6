"""Causes of failures in vLLM's processes: they write them to a file for the server, and log tracebacks at level
debug. vLLM itself only reports that a process failed, and refers to the log.
"""

import atexit
import json
import logging
import os
import re
import sys
import tempfile
from concurrent.futures import CancelledError
from pathlib import Path

from lmi_core.host.out_of_memory import killed_for_memory
from lmi_core.logs.logs import MODEL_VARIABLE
from lmi_core.texts.reason import reason

VARIABLE = "LMI_VLLM_FAILURES"  # environment variable with the path of the file
LOGGER = "vllm"
OF_ANOTHER = re.compile(r"initialization failed|See stack trace|See root cause|EngineCore encountered an issue")
FLAG = re.compile(r"`?--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)`?")  # an option of vLLM's command line
PLAIN = ("ValueError", "RuntimeError", "Exception", "KeyError")  # types that tell nothing
SENTENCES = 2  # of a message; the rest is advice for vLLM's own server
DEATH = "Worker proc %s died unexpectedly"  # the message of vLLM's executor, which ends with the exit code
END_OF_SENTENCE = re.compile(r"(?<=[a-z)\]`][.!]) (?=[A-Z])")


class Failures:
    """The server's end: the causes that processes of a model, or of any model if None, wrote since its creation."""

    def __init__(self, model: str | None = None) -> None:
        if VARIABLE not in os.environ:
            os.environ[VARIABLE] = _new_file()
        self._model = model
        self._file = Path(os.environ[VARIABLE])
        self._read = self._file.stat().st_size if self._file.exists() else 0

    @property
    def cause(self) -> str | None:
        """The unique causes in one line; None if there are none."""
        try:
            with self._file.open(encoding="utf-8") as file:
                file.seek(self._read)
                found = [json.loads(line) for line in file]
        except OSError:
            return None
        # A process fails without the name of its model only before it knows it.
        causes = [cause for model, cause in found if self._model is None or model in (self._model, None)]
        return "; ".join(dict.fromkeys(causes)) or None


def _new_file() -> str:
    """Return the path of a file that vLLM's processes can open, and that disappears with this process."""
    descriptor, path = tempfile.mkstemp(prefix="lmi-vllm-", suffix=".jsonl")
    opened = f"/proc/{os.getpid()}/fd/{descriptor}"
    if os.access(opened, os.W_OK):
        Path(path).unlink()  # the file exists as long as this process has it open
        return opened
    os.close(descriptor)
    atexit.register(Path(path).unlink, missing_ok=True)
    return path


def explain(error: BaseException) -> str:
    """Return the cause of a vLLM error in a sentence or two, with LMI's names of options."""
    text = END_OF_SENTENCE.split(" ".join(reason(error).split()))
    cause = FLAG.sub(lambda flag: f"option.{flag[1].replace('-', '_')}", " ".join(text[:SENTENCES]))
    name = type(error).__name__
    return cause if name in (*PLAIN, cause) else f"{name}: {cause}"


def report_failures() -> None:
    """Let this process of vLLM write the cause of its failure to the server's file."""
    path = os.environ.get(VARIABLE)
    if path is None:
        return
    failures = _FailureFilter(Path(path))
    loggers = [logging.getLogger(), logging.getLogger(LOGGER)]
    for handler in [handler for logger in loggers for handler in logger.handlers]:
        handler.addFilter(failures)


class _FailureFilter(logging.Filter):
    """A filter that writes the cause in a record to the file, and logs the record at level debug."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._debugs = logging.getLogger().isEnabledFor(logging.DEBUG)

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(record.args, tuple) and str(record.msg).startswith(DEATH):
            self._report(RuntimeError(death(*record.args)))
        if error is None or record.levelno < logging.ERROR:
            return True
        if not OF_ANOTHER.search(str(error)) and not self._report(error):
            return True
        if not self._debugs:
            # multiprocessing prints the traceback again when the error ends the process.
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # until the process ends
        return self._debugs

    def _report(self, error: BaseException) -> bool:
        if isinstance(error, CancelledError):  # raised while waiting for a worker that has died
            return True
        try:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps([os.environ.get(MODEL_VARIABLE), explain(error)]) + "\n")
        except OSError:  # the server has exited
            return False
        return True


def death(name: object, exit_code: object) -> str:
    """Return the cause for a process that left none."""
    killed = isinstance(exit_code, int) and killed_for_memory(exit_code)
    cause = ", perhaps because the host ran out of memory" if killed else ""
    return f"{name} died with exit code {exit_code}{cause}"
