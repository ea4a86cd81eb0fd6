"""The start of the torch worker, which answers before PyTorch is imported and reports its progress."""

import ctypes
import gc
import importlib.util
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from lmi_core.workers.channel import Channel
from lmi_core.workers.messages import Progress, encode
from lmi_core.workers.reading_ahead import reading_ahead
from lmi_plugins.torch_engine.messages.protocol import Load, decode_to_worker

logger = logging.getLogger(__name__)

REPORT_SECONDS = 0.1

LIBRARIES = {"torch": ("libtorch_cpu.so", "libtorch_python.so")}  # large libraries, with their dependencies


def run(channel: Channel) -> None:
    """Load the model in the first message, then serve forever: the worker's `target`."""
    gc.disable()  # imports create no garbage, and collection takes a quarter of the time
    libraries = threading.Thread(target=load_shared_libraries, args=("torch",), daemon=True)
    libraries.start()
    with ThreadPoolExecutor(1) as other:
        importing = other.submit(_import_service)  # while the options are read, which may take a second
        first = channel.begin(decode_to_worker)
        assert isinstance(first, Load), first
        reporter = Reporter(channel)
        reporter.begin("importing PyTorch and transformers")
        available = int(psutil.virtual_memory().available)
        with reading_ahead(Path(first.options.model), reporter.report, available, reporter.resume):
            importing.result()

            from lmi_plugins.torch_engine.worker import service

            serve_next = service.load_model(first.options, channel, reporter.begin)
    if serve_next is None:
        return
    gc.freeze()  # the garbage collector then skips all loaded objects
    gc.enable()
    while True:
        serve_next()


def prepare() -> None:
    """Import the dependencies of `run`, in a process from which workers are forked."""
    gc.disable()
    libraries = threading.Thread(target=load_shared_libraries, args=("torch",))
    libraries.start()
    _import_service()
    libraries.join()  # a fork would not inherit the thread
    gc.freeze()  # collecting garbage would copy the memory of imported modules in each fork


def _import_service() -> None:
    import transformers.utils  # noqa: F401 -- before PyTorch, whose libraries are still being loaded

    import lmi_plugins.torch_engine.worker.service  # noqa: F401 -- found imported by whoever needs it


class Reporter:
    """A sender of progress to the server, a few times per second.

    Any thread may call it, but only one sends at a time.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._begun = ""
        self._last = ""
        self._sent = 0.0

    def begin(self, what: str) -> None:
        """Report a new stage of the worker itself."""
        self._begun = what
        self.report(what, None, None)

    def resume(self) -> None:
        """Report the worker's own stage again, after other reports."""
        if self._last != self._begun:
            self.report(self._begun, None, None)

    def report(self, what: str, done: int | None, total: int | None) -> None:
        """Send a report, unless the same stage was just reported; the last report of a stage is always sent."""
        with self._lock:
            now = time.monotonic()
            if what == self._last and done != total and now - self._sent < REPORT_SECONDS:
                return
            self._last, self._sent = what, now
            self._channel.send(encode(Progress(what, done, total)))


def load_shared_libraries(package: str) -> None:
    """Load a package's large libraries, if found, before it is imported.

    Calling a C function releases the interpreter's lock, which `import` and `ctypes.CDLL` hold while they load.
    """
    dlopen = getattr(ctypes.CDLL(None), "dlopen", None) if os.name == "posix" else None
    spec = importlib.util.find_spec(package)
    if dlopen is None or spec is None or spec.origin is None:
        return
    dlopen.argtypes, dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    for name in LIBRARIES[package]:
        file = Path(spec.origin).parent / "lib" / name
        if file.exists():
            dlopen(bytes(file), os.RTLD_LAZY | os.RTLD_LOCAL)
