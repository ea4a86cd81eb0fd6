import gc
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi_core.errors import GenerationFailed
from lmi_core.forks import forked_function
from lmi_core.forks.forked_function import (
    CallEndedError,
    CallFailedError,
    CallTooCostlyError,
    Cancellation,
    ForkedFunction,
    origin,
)

HERE = "tests.core.forks.test_forked_function:"
LIMIT = 60.0
OWN_ID, PARENT = "__import__('os').getpid()", "__import__('os').getppid()"
ENDLESS = "exec('while True: pass')"
PRIORITY = "exec('import os, time\\nwhile not os.getpriority(0, 0): time.sleep(.01)')"


def doubler(argument: str) -> Callable[[Any], Any]:
    return lambda value: f"{argument}{value * 2}"


def evaluator(_: str) -> Callable[[str], Any]:
    return eval


def restricted_evaluator(_: str) -> Callable[[str], Any]:
    signal.signal(signal.SIGPROF, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30))
    return eval


@pytest.fixture
def evaluated() -> ForkedFunction:
    return ForkedFunction(HERE + "evaluator")


def test_each_call_is_a_fork_of_one_process(evaluated: ForkedFunction) -> None:
    first = evaluated.call(LIMIT, PARENT)
    assert evaluated.call(LIMIT, PARENT) == first
    assert psutil.Process(first).ppid() == origin().process_id
    assert evaluated.call(LIMIT, OWN_ID) != evaluated.call(LIMIT, OWN_ID)
    assert ForkedFunction(HERE + "doubler", lambda: "<").call(LIMIT, 21) == "<42"


def test_errors_are_messages(evaluated: ForkedFunction) -> None:
    with pytest.raises(CallFailedError, match="division by zero"):
        evaluated.call(LIMIT, "1 / 0")
    with pytest.raises(CallFailedError, match="KeyboardInterrupt"):
        evaluated.call(LIMIT, "exec('raise KeyboardInterrupt')")
    assert evaluated.call(LIMIT, "1 + 1") == 2


@pytest.mark.parametrize("endless", [ENDLESS, "10 ** 10 ** 9"])
def test_a_call_that_takes_too_long_is_ended(evaluated: ForkedFunction, endless: str) -> None:
    with pytest.raises(CallTooCostlyError, match=r"it takes more than 0\.2 seconds"):
        evaluated.call(0.2, endless)
    assert evaluated.call(LIMIT, "1 + 1") == 2


def test_memory_is_bounded(evaluated: ForkedFunction) -> None:
    with pytest.raises(CallTooCostlyError, match="it takes more than 4 GiB of memory"):
        evaluated.call(LIMIT, f"'x' * {2 * forked_function.MAX_MEMORY}")
    with pytest.raises(CallTooCostlyError, match="memory"):
        evaluated.call(LIMIT, f"'x' * {2**24}", memory=2**24)
    assert len(evaluated.call(LIMIT, f"'x' * {2**24}")) == 2**24


def test_limits_hold_under_those_of_the_host() -> None:
    restricted = ForkedFunction(HERE + "restricted_evaluator")
    with pytest.raises(CallTooCostlyError, match=r"more than 0\.2 seconds"):
        restricted.call(0.2, ENDLESS)
    with pytest.raises(CallTooCostlyError, match="memory"):
        restricted.call(LIMIT, f"'x' * {2**30}")
    assert restricted.call(LIMIT, "1 + 1") == 2


@pytest.mark.parametrize(
    ("number", "error", "message"),
    [
        (signal.SIGSEGV, CallEndedError, "its process ended with signal 11"),
        (signal.SIGKILL, GenerationFailed, "was ended"),
    ],
)
def test_the_end_of_a_process_is_reported(
    evaluated: ForkedFunction, number: int, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        evaluated.call(LIMIT, f"__import__('os').kill({OWN_ID}, {int(number)})")
    assert evaluated.call(LIMIT, "1 + 1") == 2


def test_what_cannot_be_started_is_the_servers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*arguments: object, **named: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(forked_function, "_origin", None)
    monkeypatch.setattr(forked_function, "ForkServerProcess", start)
    with pytest.raises(GenerationFailed, match="could not be started: Resource temporarily unavailable"):
        ForkedFunction(HERE + "evaluator").call(LIMIT, "1 + 1")


def test_an_answer_runs_nothing_here(evaluated: ForkedFunction) -> None:
    with pytest.raises(GenerationFailed, match="was ended"):
        evaluated.call(LIMIT, "print")  # which a pickle holds as a name to look up


def test_calls_at_the_same_time_do_not_wait_for_each_other(evaluated: ForkedFunction) -> None:
    found = []

    def endless() -> None:
        with pytest.raises(CallTooCostlyError) as raised:
            evaluated.call(0.5, ENDLESS)
        found.append(raised)

    thread = threading.Thread(target=endless)
    thread.start()
    while thread.is_alive():
        assert evaluated.call(LIMIT, "1 + 1") == 2
    assert len(found) == 1


def test_a_cancelled_call_ends_at_once(evaluated: ForkedFunction, tmp_path: Path) -> None:
    pipe, cancellation, found = tmp_path / "pipe", Cancellation(), []
    os.mkfifo(pipe)

    def endless() -> None:
        with pytest.raises(GenerationFailed) as raised:
            evaluated.call(LIMIT, f"[open({str(pipe)!r}, 'w'), {ENDLESS}]", cancellation=cancellation)
        found.append(raised)

    thread = threading.Thread(target=endless)
    thread.start()
    with pipe.open() as held:  # by the call
        cancellation.cancel()
        assert held.read() == ""
    thread.join(LIMIT)
    with pytest.raises(GenerationFailed):
        evaluated.call(LIMIT, "1 + 1", cancellation=cancellation)
    assert len(found) == 1


def test_a_long_call_gives_way_to_others() -> None:
    ForkedFunction(HERE + "evaluator", patience=0.2).call(LIMIT, PRIORITY)


def test_what_cannot_be_sent_harms_nobody(evaluated: ForkedFunction) -> None:
    with pytest.raises((AttributeError, TypeError)):
        evaluated.call(LIMIT, threading.Lock())
    with pytest.raises(CallFailedError, match="pickle"):
        evaluated.call(LIMIT, "__import__('threading').Lock()")
    assert evaluated.call(LIMIT, "1 + 1") == 2


def test_a_dead_process_is_replaced(evaluated: ForkedFunction, caplog: pytest.LogCaptureFixture) -> None:
    first = evaluated.call(LIMIT, PARENT)
    os.kill(first, signal.SIGKILL)
    psutil.Process(first).wait(LIMIT)
    assert evaluated.call(LIMIT, PARENT) != first
    assert "has died and is being restarted" in caplog.text


def test_the_process_of_all_is_replaced(evaluated: ForkedFunction) -> None:
    first = evaluated.call(LIMIT, PARENT)
    origin().kill()
    assert evaluated.call(LIMIT, PARENT) != first


def test_a_function_that_cannot_be_prepared_fails(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(GenerationFailed, match="was ended"):
        ForkedFunction(HERE + "no_such_function").call(LIMIT)
    assert "no_such_function has died" in caplog.text


def test_the_process_ends_with_its_owner() -> None:
    owner = ForkedFunction(HERE + "evaluator")
    process = psutil.Process(owner.call(LIMIT, PARENT))
    del owner
    gc.collect()
    process.wait(LIMIT)


def test_a_stopped_function_has_no_process(evaluated: ForkedFunction) -> None:
    process = psutil.Process(evaluated.call(LIMIT, PARENT))
    evaluated.stop()
    process.wait(LIMIT)
    with pytest.raises(GenerationFailed):
        evaluated.call(LIMIT, PARENT)


def test_the_interpreter_does_not_wait_to_kill_a_process() -> None:
    code = (
        "from lmi_core.forks import fork_client, forked_function\nfork_client.STOP_SECONDS = 10_000\n"
        f"kept = forked_function.ForkedFunction('{HERE}evaluator')\nkept.call({LIMIT}, '1 + 1')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LIMIT)
