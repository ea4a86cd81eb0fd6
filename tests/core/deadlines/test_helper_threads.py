import threading

import pytest

from lmi_core.deadlines.bounded import HelperThreads, TooLateError

LIMIT = 60.0


def test_results_and_errors_are_those_of_the_work() -> None:
    threads = HelperThreads()
    assert threads.run(LIMIT, lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        threads.run(LIMIT, lambda: 1 // 0)
    first = threads.run(LIMIT, threading.get_ident)
    assert threads.run(LIMIT, threading.get_ident) == first != threading.get_ident()


def test_endless_python_code_ends() -> None:
    threads, running = HelperThreads(), []

    def endless() -> None:
        running.append(threading.current_thread())
        while True:
            try:
                sum(range(100))
            except Exception:  # which does not catch the end
                continue

    with pytest.raises(TooLateError):
        threads.run(0.05, endless)
    running[0].join(LIMIT)
    assert not running[0].is_alive()
    assert threads.run(LIMIT, lambda: 3) == 3


def test_nothing_else_begins_while_an_abandoned_thread_works() -> None:
    threads, release, running = HelperThreads(), threading.Event(), []

    def held() -> None:
        running.append(threading.current_thread())
        release.wait()

    for work in (held, lambda: None):
        with pytest.raises(TooLateError):
            threads.run(0.05, work)
    release.set()
    running[0].join(LIMIT)
    assert threads.run(LIMIT, lambda: 3) == 3


def test_threads_end_with_their_owner() -> None:
    threads = HelperThreads()
    helper = threads.run(LIMIT, threading.current_thread)
    assert helper.is_alive()
    del threads
    helper.join(LIMIT)
    assert not helper.is_alive()


def test_code_that_loses_the_first_end_gets_another() -> None:
    threads, running, lost = HelperThreads(), list[threading.Thread](), threading.Event()

    def endless() -> None:
        running.append(threading.current_thread())
        while True:
            try:
                sum(range(100))
            except BaseException:
                if lost.is_set():
                    raise
                lost.set()

    with pytest.raises(TooLateError):
        threads.run(0.05, endless)
    assert lost.wait(LIMIT)
    with pytest.raises(TooLateError):
        threads.run(0.05, lambda: None)
    running[0].join(LIMIT)
    assert not running[0].is_alive()
