import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from lmi_core.deadlines import killable
from lmi_core.deadlines.killable import CallFailedError, CallTooCostlyError, Killable

HERE = "tests.core.deadlines.test_killable:"
LIMIT = 60.0


@pytest.fixture(autouse=True)
def _processes_can_import_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def doubler(argument: str) -> Callable[[Any], Any]:
    return lambda value: f"{argument}{value * 2}"


def evaluator(_: str) -> Callable[[str], Any]:
    return eval


def test_the_function_runs_in_one_process_that_is_kept() -> None:
    evaluated = Killable(HERE + "evaluator")
    first = evaluated.call(LIMIT, "__import__('os').getpid()")
    assert evaluated.call(LIMIT, "__import__('os').getpid()") == first
    assert Killable(HERE + "doubler", lambda: "<").call(LIMIT, 21) == "<42"


def test_errors_are_messages() -> None:
    evaluated = Killable(HERE + "evaluator")
    with pytest.raises(CallFailedError, match="division by zero"):
        evaluated.call(LIMIT, "1 / 0")
    with pytest.raises(CallFailedError, match="KeyboardInterrupt"):
        evaluated.call(LIMIT, "exec('raise KeyboardInterrupt')")
    assert evaluated.call(LIMIT, "1 + 1") == 2


@pytest.mark.parametrize("endless", ["exec('while True: pass')", "10 ** 10 ** 9"])
def test_a_call_that_takes_too_long_is_ended(endless: str) -> None:
    evaluated = Killable(HERE + "evaluator")
    with pytest.raises(CallTooCostlyError, match=r"it takes more than 0\.2 seconds"):
        evaluated.call(0.2, endless)
    assert evaluated.call(LIMIT, "1 + 1") == 2


def test_memory_is_bounded() -> None:
    evaluated = Killable(HERE + "evaluator")
    with pytest.raises(CallTooCostlyError, match="it takes more than 4 GiB of memory"):
        evaluated.call(LIMIT, f"'x' * {killable.MAX_MEMORY}")
    with pytest.raises(CallTooCostlyError):
        evaluated.call(LIMIT, "__import__('os').kill(__import__('os').getpid(), 9)")


def test_calls_at_the_same_time_do_not_wait_for_each_other() -> None:
    evaluated, found = Killable(HERE + "evaluator"), []

    def endless() -> None:
        with pytest.raises(CallTooCostlyError) as raised:
            evaluated.call(1.0, "exec('while True: pass')")
        found.append(raised)

    thread = threading.Thread(target=endless)
    thread.start()
    while thread.is_alive():
        assert evaluated.call(LIMIT, "1 + 1") == 2
    assert len(found) == 1


def test_what_cannot_be_sent_harms_nobody() -> None:
    evaluated = Killable(HERE + "evaluator")
    with pytest.raises((AttributeError, TypeError)):
        evaluated.call(LIMIT, threading.Lock())
    assert evaluated.call(LIMIT, "1 + 1") == 2


def test_processes_end_with_their_owner() -> None:
    evaluated = Killable(HERE + "evaluator")
    evaluated.call(LIMIT, "1 + 1")
    (process,) = evaluated._idle
    del evaluated
    gc.collect()
    assert process.returncode is not None
