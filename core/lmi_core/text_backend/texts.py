"""Reading of an author's generator: asynchronous ones in the event loop, others in their own thread."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any

from lmi_core.errors import GenerationFailed

END = object()
WANTED = "`generate` must yield texts, each a str"


async def read_texts(begin: Callable[[], Any], *, in_thread: bool, owner: str) -> AsyncGenerator[str, None]:
    """Yield the texts of the stream that `begin` returns; closing the generator closes it too.

    Raise GenerationFailed if it is not a stream of texts; `owner` names its code in the message.
    """
    items = _from_thread(begin, owner) if in_thread else _from_stream(begin())
    try:
        async for item in items:
            if not isinstance(item, str):
                raise GenerationFailed(f"{owner}: {WANTED}, and yielded {type(item).__name__}")
            yield item
    finally:
        await items.aclose()


async def _from_stream(stream: AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
    try:
        async for item in stream:
            yield item
    finally:
        if hasattr(stream, "aclose"):
            await stream.aclose()


async def _from_thread(begin: Callable[[], Any], owner: str) -> AsyncGenerator[Any, None]:
    """Yield the items of an iterable, read in a thread on demand."""
    worker = _Worker(begin, owner)
    try:
        while (item := await worker.next()) is not END:
            if isinstance(item, _Stream):
                async for each in _from_stream(item.stream):
                    yield each
                return
            yield item
    finally:
        worker.close()


class _Stream:
    """An asynchronous stream returned by `generate`, to be read in the event loop."""

    def __init__(self, stream: AsyncIterable[Any]) -> None:
        self.stream = stream


class _Worker:
    """A thread that runs and closes one iterator; a daemon, because the author's code may hang."""

    def __init__(self, begin: Callable[[], Any], owner: str) -> None:
        self._begin = begin
        self._owner = owner
        self._asked: queue.SimpleQueue[Future[Any] | None] = queue.SimpleQueue()
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._work,), name="generate", daemon=True).start()

    async def next(self) -> Any:
        """Return the next item, or END. Raise the iterator's exceptions."""
        future = Future[Any]()
        self._asked.put(future)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Let the thread close the iterator when it is not running, and end."""
        self._asked.put(None)

    def _work(self) -> None:
        iterator: Iterator[Any] | None = None
        try:
            while (future := self._asked.get()) is not None:
                if not future.set_running_or_notify_cancel():  # no one waits for the item
                    continue
                try:
                    if iterator is None:
                        iterator = self._begin_iterator()
                    future.set_result(next(iterator, END))
                # These would end the server, or look like the end of the request.
                except (SystemExit, CancelledError, asyncio.CancelledError, StopIteration) as error:
                    future.set_exception(GenerationFailed(f"{self._owner} raised {type(error).__name__}: {error}"))
                except Exception as error:
                    future.set_exception(error)
        finally:
            if (close := getattr(iterator, "close", None)) is not None:
                with suppress(Exception):  # no one waits for its result
                    close()

    def _begin_iterator(self) -> Iterator[Any]:
        found = self._begin()
        if isinstance(found, AsyncIterable):
            return iter([_Stream(found)])
        if isinstance(found, str):  # otherwise its characters would be the tokens
            raise GenerationFailed(f"{self._owner}: {WANTED}, but returned a single str")
        return iter(found)
