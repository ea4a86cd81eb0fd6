"""Workers of model functions and downloads, forked from a process that has imported what they need.

Starting one from scratch costs half a second of a core, and the tests start hundreds. Workers with another interpreter,
target, import path or limits are started as in `lmi serve`.
"""

import importlib
import os
import resource
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from lmi_core.forks.fork_client import ForkServerProcess
from lmi_core.remote import fetching
from lmi_core.script.function import process
from lmi_core.workers import local_process, prepared_workers, worker
from lmi_core.workers.child_process import StartedProcess, execute
from lmi_core.workers.prepared_workers import PreparedWorker

PREPARE = "tests.worker_forks:prepare"
TARGETS = (process.TARGET, fetching.TARGET)
COMMAND = (sys.executable, "-P", "-m", worker.__name__)
IMPORTED = ("boto3", "numpy")  # only when a target needs them
EARLY = ("OMP_", "PYTHON", "SSL_")  # variables that the interpreter and these modules read when they start
IGNORED = "PYTHONBREAKPOINT"  # set by Ray for the rest of the process, and without effect on workers
ROOT = str(Path(__file__).parents[1])


@contextmanager
def workers_are_forked() -> Iterator[None]:
    """Fork the workers that this process starts, all from one process, whichever variables of theirs tests change."""
    limits, early = _limits(), _early(os.environ)
    path = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))
    of_server = os.environ | {"PYTHONPATH": path}
    fork_server_for = prepared_workers.fork_server_for

    def start(command: Sequence[str], environment: Mapping[str, str]) -> StartedProcess:
        program, arguments = tuple(command[: len(COMMAND)]), command[len(COMMAND) :]
        is_usual = (program, _early(environment), _limits()) == (COMMAND, early, limits)
        if is_usual and arguments[0] in TARGETS:
            return PreparedWorker(PREPARE, arguments, environment)
        return execute(command, environment)

    def server_for(prepare: str, environment: Mapping[str, str]) -> ForkServerProcess:
        return fork_server_for(prepare, of_server if prepare == PREPARE else environment)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_process, execute.__name__, start)
        patch.setattr(prepared_workers, "fork_server_for", server_for)
        yield


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(EARLY) and name != IGNORED}


def _limits() -> list[tuple[int, int]]:
    """Return the limits that a process started by this one inherits."""
    return [resource.getrlimit(number) for name, number in vars(resource).items() if name.startswith("RLIMIT_")]


def prepare() -> None:
    """Import what workers need, and forget where this module was found and what the environment said meanwhile."""
    for name in (*(target.partition(":")[0] for target in TARGETS), *IMPORTED):
        importlib.import_module(name)
    tempfile.tempdir = None
    sys.path.remove(ROOT)
