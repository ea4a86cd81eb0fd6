"""Guides that are being compiled, and the requests that wait for them."""

import hashlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import msgspec

from lmi_core.errors import GenerationFailed, Overloaded
from lmi_core.forks.forked_function import Cancellation
from lmi_plugins.torch_engine.messages.requests import Guide

PLACES = 6  # guides compiled at the same time
PATIENCE = 3.0  # seconds for which a guide keeps its slot while others wait for one


def guide_key(guide: Guide) -> bytes:
    """Return the identity of a guide."""
    return hashlib.sha256(msgspec.msgpack.encode(guide)).digest()


def guide_size(guide: Guide) -> int:
    """Return the bytes of a guide's text."""
    texts = guide.content if isinstance(guide.content, list) else [guide.content]
    return sum(len(text.encode(errors="surrogatepass")) for text in texts)


@dataclass(eq=False)
class Compilation:
    """The compilation of one guide."""

    key: bytes
    guide: Guide
    future: "Future[Any]" = field(default_factory=Future)  # a CompiledGrammar; None for a trial
    cancellation: Cancellation = field(default_factory=Cancellation)
    num_waiting: int = 1  # number of requests
    begun: float | None = None  # when it got its slot
    made_room: bool = False  # it gave up its slot to others


class Compilations:
    """The running and waiting compilations."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(PLACES, thread_name_prefix="guide")
        self._lock = threading.Lock()
        self._by_key: dict[bytes, Compilation] = {}

    def submit(self, guide: Guide, work: Callable[[Compilation], object]) -> Compilation:
        """Join the running compilation of the same guide, or start one, which does the work.

        Its future raises Overloaded if others needed its slot.
        """
        key = guide_key(guide)
        with self._lock:
            known = self._by_key.get(key)
            if known is not None and not known.cancellation.cancelled:
                known.num_waiting += 1
                return known
            compilation = Compilation(key, guide)
            compilation.future = self._threads.submit(self._run, compilation, work)
            self._by_key[key] = compilation
            return compilation

    def stop(self) -> None:
        """Start no more compilations."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, compilation: Compilation, work: Callable[[Compilation], object]) -> object:
        compilation.begun = time.monotonic()
        try:
            return work(compilation)
        except GenerationFailed:
            if compilation.made_room:
                raise Overloaded(
                    f"`guided_{compilation.guide.kind}` takes long to compile, and other requests waited: try again "
                    f"later"
                ) from None
            raise
        finally:
            with self._lock:
                self._forget(compilation)

    def leave(self, compilation: Compilation) -> None:
        """Remove one waiting request; without any, the compilation ends."""
        with self._lock:
            compilation.num_waiting -= 1
            if compilation.num_waiting:
                return
            self._forget(compilation)
        compilation.future.cancel()
        compilation.cancellation.cancel()

    def make_room(self) -> None:
        """End the compilation that has held its slot longest, if it has taken too long and another waits."""
        with self._lock:
            begun = [each for each in self._by_key.values() if each.begun is not None]
            if len(self._by_key) == len(begun) or len(begun) < PLACES:
                return
            longest = min(begun, key=lambda each: each.begun or 0.0)
        if not longest.made_room and time.monotonic() - (longest.begun or 0.0) > PATIENCE:
            longest.made_room = True
            longest.cancellation.cancel()

    def _forget(self, compilation: Compilation) -> None:
        if self._by_key.get(compilation.key) is compilation:
            del self._by_key[compilation.key]
