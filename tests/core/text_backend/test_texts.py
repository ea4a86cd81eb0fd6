"""An author's generator is read in the event loop or in a thread of its own, and closed as soon as it can be."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent import futures
from contextlib import aclosing
from typing import Any

import pytest

from lmi_core.errors import GenerationFailed, InvalidParameter
from lmi_core.text_backend.texts import read_texts


def read(begin: Callable[[], Any], *, in_thread: bool = True) -> AsyncGenerator[str, None]:
    return read_texts(begin, in_thread=in_thread, owner="the parrot backend (Parrot)")


async def all_texts(begin: Callable[[], Any], *, in_thread: bool = True) -> list[str]:
    async with aclosing(read(begin, in_thread=in_thread)) as texts:
        return [text async for text in texts]


async def asynchronous() -> AsyncIterator[str]:
    yield "one"
    await asyncio.sleep(0)
    yield "two"


def blocking() -> Iterator[str]:
    yield "one"
    yield "two"


@pytest.mark.parametrize("begin", [asynchronous, blocking, lambda: ["one", "two"], lambda: asynchronous()])
async def test_forms(begin: Callable[[], Any]) -> None:
    assert await all_texts(begin, in_thread=begin is not asynchronous) == ["one", "two"]


async def test_one_thread_runs_an_iterator_and_it_is_not_the_event_loop_s() -> None:
    threads: list[threading.Thread] = []

    def begin() -> Iterator[str]:
        try:
            for _ in range(3):
                threads.append(threading.current_thread())
                yield "one"
        finally:
            threads.append(threading.current_thread())

    await all_texts(begin)
    assert len(threads) == 4
    assert len(set(threads)) == 1
    assert threads[0] is not threading.current_thread()


async def test_several_block_at_once() -> None:
    both = threading.Barrier(2, timeout=60)

    def begin() -> Iterator[str]:
        both.wait()
        yield "one"

    assert list(await asyncio.gather(all_texts(begin), all_texts(begin))) == [["one"], ["one"]]


async def test_the_iterator_is_closed_when_the_reader_leaves() -> None:
    closed = threading.Event()

    def begin() -> Iterator[str]:
        try:
            while True:
                yield "one"
        finally:
            closed.set()

    async with aclosing(read(begin)) as texts:
        assert await anext(texts) == "one"
    assert await asyncio.to_thread(closed.wait, 10)


async def test_a_reader_need_not_wait_for_a_blocked_iterator() -> None:
    closed, blocked, goes_on = threading.Event(), threading.Event(), threading.Event()

    def begin() -> Iterator[str]:
        try:
            blocked.set()
            goes_on.wait(10)
            yield "one"
        finally:
            closed.set()

    async with aclosing(read(begin)) as texts:
        reading = asyncio.ensure_future(anext(texts))
        await asyncio.to_thread(blocked.wait, 10)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    assert not closed.is_set()
    goes_on.set()
    assert await asyncio.to_thread(closed.wait, 10)


async def test_an_asynchronous_generator_is_closed_before_the_reader_goes_on() -> None:
    closed: list[bool] = []

    async def begin() -> AsyncIterator[str]:
        try:
            yield "one"
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    async with aclosing(read(begin, in_thread=False)) as texts:
        await anext(texts)
    assert closed == [True]


@pytest.mark.parametrize(("item", "given"), [(5, "int"), (b"one", "bytes")])
@pytest.mark.parametrize("in_thread", [True, False])
async def test_items_of_another_type(item: object, given: str, in_thread: bool) -> None:
    def iterable() -> Iterator[Any]:
        yield item

    async def stream() -> AsyncIterator[Any]:
        yield item

    with pytest.raises(GenerationFailed) as failure:
        await all_texts(iterable if in_thread else stream, in_thread=in_thread)
    wanted = f"the parrot backend (Parrot): `generate` must yield texts, each a str, and yielded {given}"
    assert failure.value.message == wanted


async def test_a_text_in_place_of_a_stream() -> None:
    with pytest.raises(GenerationFailed, match="must yield texts, each a str, but returned a single str"):
        await all_texts(lambda: "one")


@pytest.mark.parametrize(
    ("error", "raised_as"),
    [
        (ValueError("no"), ValueError),
        (InvalidParameter("`x` must be 1"), InvalidParameter),
        (StopAsyncIteration("no"), RuntimeError),  # of which it is the cause, as Python has it
    ],
)
async def test_errors_arrive_as_they_are(error: Exception, raised_as: type[Exception]) -> None:
    def begin() -> Iterator[str]:
        yield "one"
        raise error

    texts = read(begin)
    assert await anext(texts) == "one"
    with pytest.raises(raised_as) as raised:
        await anext(texts)
    assert error is (raised.value if raised_as is type(error) else raised.value.__cause__)


@pytest.mark.parametrize(
    "error", [SystemExit("no model"), futures.CancelledError("no model"), asyncio.CancelledError("no model")]
)
async def test_what_would_end_more_ends_the_request_alone(error: BaseException) -> None:
    def begin() -> Iterator[str]:
        yield from ()
        raise error

    message = rf"the parrot backend \(Parrot\) raised {type(error).__name__}: no model"
    with pytest.raises(GenerationFailed, match=message):
        await all_texts(begin)


async def test_a_stream_that_cannot_begin_ends_the_request() -> None:
    def begin() -> Iterator[str]:
        raise StopIteration

    with pytest.raises(GenerationFailed, match="raised StopIteration"):
        await all_texts(begin)
