"""Calls of a model function with one request or a batch, and their answers."""

from collections.abc import AsyncGenerator, Callable, Sequence

from lmi_core.errors import FormatterFailed, LmiError
from lmi_core.script.djl_names.inputs import BATCH_KEY
from lmi_core.script.function.protocol import Chunk, Content, End, Head, Reply, Request
from lmi_core.workers.item_queue import ItemQueue

MAX_NAMES = 10  # contents named in one message


class FunctionCall:
    """One request and its answer, which may be read while it arrives."""

    def __init__(self, function: str, request: Request, begin: Callable[[], object] | None = None) -> None:
        """`begin` is called when a process gets the request."""
        self.function = function
        self.request = request
        self.begin = begin
        self.cancelled = False
        self.on_cancel: Callable[[], None] | None = None
        self._replies = ItemQueue[Reply]()

    async def answer(self) -> AsyncGenerator[Head | Chunk, None]:
        """Yield the replies as they arrive; closing the generator cancels the call. Raise LmiError if it fails."""
        try:
            while not isinstance(reply := await self._replies.get(), End):
                yield reply
        finally:
            self.cancelled = True
            if self.on_cancel is not None:
                self.on_cancel()

    def deliver(self, reply: Reply) -> None:
        if isinstance(reply, End) and reply.error is not None:
            self.fail(FormatterFailed(reply.error))
        else:
            self._replies.put(reply, final=isinstance(reply, End))

    def fail(self, error: LmiError) -> None:
        self._replies.fail(error)


class FunctionBatch:
    """The requests that one call of the function answers."""

    def __init__(self, calls: Sequence[FunctionCall]) -> None:
        self.calls = calls
        self.function = calls[0].function
        self.requests = [call.request for call in calls]
        self._failed = False

    @property
    def cancelled(self) -> bool:
        return all(call.cancelled for call in self.calls)

    def on_cancel(self, cancel: Callable[[], None] | None) -> None:
        """Set the callback for the case that every request of the batch is cancelled."""
        for call in self.calls:
            call.on_cancel = (lambda: cancel() if cancel is not None and self.cancelled else None) if cancel else None

    def begin(self) -> None:
        for call in self.calls:
            if call.begin is not None:
                call.begin()

    def deliver(self, reply: Reply) -> None:
        if self._failed:
            return
        if len(self.calls) > 1 and isinstance(reply, Head):
            self._share(reply)
            return
        for call in self.calls:
            call.deliver(reply)

    def fail(self, error: LmiError) -> None:
        if not self._failed:
            self._failed = True
            for call in self.calls:
                call.fail(error)

    def _share(self, head: Head) -> None:
        """Deliver to each request its own content, and errors to all."""
        if head.streams:
            self.fail(FormatterFailed("a model function that streams its answer needs batch_size=1"))
        elif head.code >= 300:
            for call in self.calls:
                call.deliver(head)
        elif (shares := _shares(head.content, len(self.calls))) is None:
            names = ", ".join(key for key, _ in head.content[:MAX_NAMES] if key)
            self.fail(
                FormatterFailed(
                    f"the model function answered a batch of {len(self.calls)} with {len(head.content)} contents"
                    f"{f' ({names})' if names else ''}: it must return one for each request"
                )
            )
        else:
            for call, content in zip(self.calls, shares, strict=True):
                call.deliver(Head(head.call_id, head.code, head.headers, content))


def _shares(content: Content, size: int) -> list[Content] | None:
    """Return the content of each request, by the index in its key or, without one, by position.

    None means that a request has no content.
    """
    matches = [BATCH_KEY.fullmatch(key or "") for key, _ in content]
    shares: list[Content] = [[] for _ in range(size)]
    for place, (match, (key, value)) in enumerate(zip(matches, content, strict=True)):
        index = int(match[1]) if match else place
        if index >= size or (match is None and any(matches)):
            return None
        shares[index].append((match[2] if match else key, value))
    return shares if all(shares) else None
