"""The running calls of a model, which can be ended from outside."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from lmi_core.admission.admission import current_key, reserve
from lmi_core.admission.time_limits import NONE, TimeLimits
from lmi_core.admission.turns import Turn
from lmi_core.errors import LmiError, Overloaded
from lmi_core.generation.request import ValidRequest
from lmi_core.workers.resumption import EngineTime, current_engine_time


class RunningCalls:
    """The running calls by request id. Clients choose the ids, so several calls may share one."""

    def __init__(self, max_queued_tokens: int | None = None) -> None:
        """`max_queued_tokens` limits the prompts of all calls without a first token; None means no limit."""
        self._max_queued_tokens = max_queued_tokens
        self._calls: dict[str, set[RunningCall]] = {}
        self._error: LmiError | None = None

    def abort(self, request_id: str, client: str | None = None) -> bool:
        """Abort every call with that id, or only those of one client; return whether there were any."""
        calls = [call for call in self._calls.get(request_id, ()) if client in (None, call.client)]
        for call in calls:
            call.abort()
        return bool(calls)

    def abort_one(self, request_id: str, requests: Sequence[ValidRequest]) -> None:
        """Abort the call with that id and these requests, and no other call with the same id."""
        for call in self._calls.get(request_id, ()):
            if call.requests is requests:
                call.abort()

    def fail_all(self, error: LmiError) -> None:
        """End every call with an error, including calls that have not started."""
        self._error = error
        for calls in self._calls.values():
            for call in calls:
                call.fail(error)

    def accept(self) -> None:
        """Let calls start again after `fail_all`."""
        self._error = None

    @property
    def queued_tokens(self) -> int:
        """The prompt tokens of the calls that have no first token."""
        return sum([call.queued_tokens for calls in self._calls.values() for call in calls])

    def check_tokens(self, num_tokens: int = 1) -> None:
        """Raise Overloaded if these prompt tokens and those of other calls exceed the bound, or would leave too few for
        other keys; a single call never does.
        """
        if self._max_queued_tokens is None:
            return
        key, bound = current_key.get(), self._max_queued_tokens
        kept = 0 if key is None else reserve(bound)
        calls = [call for calls in self._calls.values() for call in calls]
        counted = [(call.key, min(call.queued_tokens, bound - kept)) for call in calls]  # longer ones leave them too
        queued = sum([tokens for _, tokens in counted])
        kept = min(kept, sum([tokens for each, tokens in counted if each == key]))
        if queued and queued + num_tokens + kept > bound:
            beside = f" beside the {kept} reserved for other keys" if kept else ""
            raise Overloaded(
                f"the queue has {self.queued_tokens} prompt tokens of other requests, and with this one it would have "
                f"more than option.max_num_queued_tokens={bound}{beside}"
            )

    @contextmanager
    def call(
        self,
        request_id: str,
        limits: TimeLimits,
        unit: str = "token",
        requests: Sequence[ValidRequest] = (),
        client: str = "",
    ) -> "Iterator[RunningCall]":
        """Start a client's call, which can be aborted from now on; messages name its output by `unit`.

        Raise Overloaded if its prompts and those of other calls are too long in total.
        """
        if self._error is not None:
            raise self._error
        num_tokens = sum([len(request.prompt_ids) for request in requests])
        self.check_tokens(num_tokens)
        call = RunningCall(limits, unit, num_tokens, client)
        call.requests = requests
        current_engine_time.set(call.engine_time)
        self._calls.setdefault(request_id, set()).add(call)
        try:
            yield call
        finally:
            calls = self._calls[request_id]
            calls.discard(call)
            if not calls:
                del self._calls[request_id]


class RunningCall:
    """The waits of one task for steps. An abort or a time limit interrupts a wait, but never the sending of a step."""

    def __init__(
        self,
        limits: TimeLimits,
        unit: str = "token",
        num_prompt_tokens: int = 0,
        client: str = "",
    ) -> None:
        self.client = client
        self.key = current_key.get()
        self.requests: Sequence[ValidRequest] = ()
        self.engine_time = EngineTime()
        self.aborted = False
        self._num_prompt_tokens = num_prompt_tokens
        self._failure: LmiError | None = None
        self._limits = limits
        self._unit = unit
        self._cut = asyncio.timeout(None)
        self.is_cut = False  # whether its wait is interrupted
        self._late: LmiError | None = None  # the limit that ended the call
        self.waits = False  # for a step; not while one is being sent, which nothing interrupts
        self._arrived = asyncio.get_running_loop().time()
        self._begun: float | None = None  # when its turn came
        self._last: float | None = None  # when the current wait for a step began; None for the first step

    @property
    def queued_tokens(self) -> int:
        """The number of prompt tokens until the first token arrives, then 0."""
        return self._num_prompt_tokens if self._last is None else 0

    def abort(self) -> None:
        self.aborted = True
        self._cut_short()

    def fail(self, error: LmiError) -> None:
        """Raise the error instead of returning the next step."""
        self._failure = error
        self._cut_short()

    def is_unread(self) -> bool:
        """Return whether the client has not read the last step yet."""
        return not self.waits

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Interrupt the body if it waits too long for the call's turn or for a step.

        Raise QueueTimeout, GenerationTimeout, or the error given to `fail`. An abort ends the body without an error.
        """
        self._watch = self._schedule_check() if self._limits.shortest < NONE else None
        try:
            async with self._cut:
                self.waits = True
                yield
        except TimeoutError:
            if not self._cut.expired():  # the engine's own timeout
                raise
            if self._failure is not None:
                raise self._failure from None
            if not self.aborted and self._late is not None:
                raise self._late from None
        finally:
            self.waits = False
            if self._watch is not None:
                self._watch.cancel()

    async def wait_for(self, turn: Turn) -> None:
        """Wait for the call's turn."""
        await turn.wait()
        self._begun = asyncio.get_running_loop().time()

    def drop_interruption(self) -> None:
        """End an interruption that came too late, as the step has arrived."""
        self._cut.reschedule(None)
        self.is_cut = False

    def begin_step(self) -> bool:
        """Start waiting for another step, or return False after an abort. Raise the error given to `fail`."""
        if self._failure is not None:
            raise self._failure
        if self.aborted:
            return False
        self._last, self.waits = asyncio.get_running_loop().time(), True
        return True

    def _look(self) -> None:
        """Check the wait, and schedule the next check for when it may be too long; this is cheaper than a timer per
        step.
        """
        since, seconds, error = self._phase()
        if self.waits and asyncio.get_running_loop().time() - since >= seconds and not self.is_cut:
            self._late = error()
            self._cut_short()
        self._watch = self._schedule_check()

    def _schedule_check(self) -> asyncio.TimerHandle:
        """Schedule a check for the end of the current phase, and early enough for a phase that starts soon."""
        loop = asyncio.get_running_loop()
        since, seconds, _ = self._phase()
        left = since + seconds - loop.time() if self.waits and not self.is_cut else NONE
        return loop.call_later(min(left, self._limits.shortest), self._look)

    def _phase(self) -> tuple[float, float, Callable[[], LmiError]]:
        """Return the start of the current phase, its maximum seconds, and the error if it takes longer.

        A token is awaited from when the request is in an engine, because requests continue in a replacement.
        """
        if self._begun is None:
            return self._arrived, self._limits.queue, self._limits.queue_error
        if self._last is None:
            return (
                self._in_engine_since(self._begun),
                self._limits.first_token,
                partial(self._limits.first_error, self._unit),
            )
        return self._in_engine_since(self._last), self._limits.inter_token, partial(self._limits.next_error, self._unit)

    def _in_engine_since(self, begin: float) -> float:
        """Return the later of a time and the call's entry into its engine; the present if it waits for an engine."""
        return max(begin, min(self.engine_time.since, asyncio.get_running_loop().time()))

    def _cut_short(self) -> None:
        if self.waits and not self.is_cut:  # once is enough: a timeout that is passing cannot be changed
            self.is_cut = True
            self._cut.reschedule(0)
