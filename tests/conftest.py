"""The fixtures that plugin authors have too, and the hooks behind the markers of `markers.py`."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web_app

from lmi_core.deadlines.bounded import Abandoned
from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.logs.logs import LOG_LEVEL_VARIABLE
from lmi_core.plugins import loading
from lmi_core.workers import prepared_workers
from lmi_handlers.testing import (
    SCRIPTED,
    Answer,
    Golden,
    ModelDirectory,
    RunningServer,
    Serve,
    running_server,
)
from tests.documented_answers import AnswerChecks, watch
from tests.longest import FilesOfOneEngine, seconds_of
from tests.loop_clock import LoopClock, clock
from tests.markers import add_markers, check_paths, is_fast, loaded_libraries, marker_of_path

__all__ = [
    "SCRIPTED",
    "Answer",
    "Golden",
    "LoopClock",
    "ModelDirectory",
    "RunningServer",
    "Serve",
    "clock",
    "running_server",
]

pytest_plugins = ["lmi_handlers.testing"]  # which also works where it is not installed as pytest's

MAX_NEW_OBJECTS = 50_000  # until garbage is looked for
READ_BY_FORKS = ("AWS_", "LMI_CACHE", "NO_PROXY", "SERVING_", "TQDM_")  # prefixes of variables

# Engines compute on one thread, in this process and in those that it starts: with a test for each core, the threads of
# an operation mostly wait for each other. vLLM's CPU build otherwise sets the number itself.
os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def parameters(server: RunningServer) -> ExtendedParameters:
    """Return the parameters of the backend's latest request."""
    latest = server.scripted.history[-1].parameters
    assert isinstance(latest, ExtendedParameters)
    return latest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="run only the tests that need no engine")


def pytest_configure(config: pytest.Config) -> None:
    check_paths()
    if hasattr(config.option, "loadscopereorder"):  # several processes, to which the files go in our own order
        config.option.loadscopereorder = False
    for number in (signal.SIGHUP, signal.SIGINT):  # which nohup and shells have ignored, servers of tests too
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesOfOneEngine | None:
    return FilesOfOneEngine(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what `--fast` would not run without importing it; None leaves the choice to others."""
    return True if config.getoption("fast") and marker_of_path(collection_path) else None


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: packed ones hold the time, and several processes must give a test the same name."""
    return argname if isinstance(val, bytes) and not val.decode("latin-1").isprintable() else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a file that imports an engine's library when it is collected although it has no marker."""
    before = loaded_libraries()
    report = yield
    imported = loaded_libraries() - before
    if imported and collector.config.getoption("fast") and marker_of_path(collector.path) is None:
        raise pytest.UsageError(f"{collector.nodeid} imports {', '.join(imported)}: name it in tests/markers.py")
    return report


@pytest.hookimpl(tryfirst=True)  # so that `-m` sees the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        add_markers(item)
    if hasattr(config, "workerinput"):  # one of several processes
        items.sort(key=lambda item: -seconds_of(item.path))
    if not config.getoption("fast"):
        return
    config.hook.pytest_deselected(items=[item for item in items if not is_fast(item)])
    items[:] = [item for item in items if is_fast(item)]


def pytest_collection(session: pytest.Session) -> None:
    """Look for no garbage while tests are collected, which makes none."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spare the garbage collector the tests themselves, which it would look through for a second, again and again.

    It then looks as seldom as it does in `lmi serve`.
    """
    gc.enable()
    gc.freeze()
    gc.set_threshold(MAX_NEW_OBJECTS)


@pytest.fixture(autouse=True)
def no_engine_without_a_marker(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that is the first to import an engine's library although it has no marker."""
    before = loaded_libraries()
    yield
    if request.config.getoption("fast") and (imported := loaded_libraries() - before):
        pytest.fail(f"the test imports {', '.join(imported)}: give it a marker (tests/markers.py)")


@pytest.fixture(autouse=True)
def log_level_is_kept() -> Iterator[None]:
    """Undo changes of the log level, which every request to POST /server/logging makes for the whole process.

    The level of workers becomes the default one, whatever a fixture of a module has changed.
    """
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    os.environ.pop(LOG_LEVEL_VARIABLE, None)


@pytest.fixture(scope="session", autouse=True)
def abandoned_threads_end_anywhere() -> Iterator[None]:
    """Leave out the report of Python that a callback ignored the end of a helper thread, which is then ended again."""
    report = sys.unraisablehook

    def hook(fault: "sys.UnraisableHookArgs") -> None:
        if fault.exc_type is not Abandoned:
            report(fault)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", hook)
        yield


@pytest.fixture(scope="session", autouse=True)
def packages_searched_once() -> Iterator[None]:
    """Search the installed packages for plugins once for each search path, and not for each of thousands of servers."""

    @cache
    def found(_: tuple[str, ...], group: str) -> EntryPoints:
        return entry_points(group=group)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "entry_points", lambda group: found(tuple(sys.path), group))
        yield


@pytest.fixture(scope="session", autouse=True)
def engines_prepared_once() -> Iterator[None]:
    """Keep the process that workers are forked from where tests change variables that it does not read by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared_workers, "OF_TESTS", (prepared_workers.OF_TESTS, *READ_BY_FORKS))
        yield


@pytest.fixture(scope="session", autouse=True)
def workers_prepared_once() -> Iterator[None]:
    """Fork workers of model functions and downloads, most of whose time is that of their imports."""
    from tests.worker_forks import workers_are_forked  # which reads the variables that are set above

    with workers_are_forked():
        yield


@pytest.fixture(autouse=True)
def ended_servers_are_forgotten() -> Iterator[None]:
    """Empty aiohttp's cache of middlewares, which holds on to every server that was ever asked anything."""
    yield
    web_app._cached_build_middleware.cache_clear()


@pytest.fixture(scope="session")
def answer_checks() -> Iterator[AnswerChecks]:
    """Checks of the answers of all servers in this process, by their OpenAPI documents."""
    checks = AnswerChecks()
    watching = watch(checks)
    next(watching)
    yield checks
    next(watching, None)


@pytest.fixture(autouse=True)
def answers_are_as_documented(answer_checks: AnswerChecks) -> Iterator[None]:
    """Fail a test that got an answer which the OpenAPI document of its server does not describe."""
    yield
    if faults := answer_checks.take():
        pytest.fail("\n".join(["answers are not as the OpenAPI document says:", *faults[:5]]), pytrace=False)
