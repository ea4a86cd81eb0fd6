"""The calls that a model works on, each of which somebody else may end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from lmi_core.admission.time_limits import NONE, TimeLimits
from lmi_core.admission.turns import Turn
from lmi_core.errors import LmiError, Overloaded
from lmi_core.generation.request import ValidRequest


class RunningCalls:
    """The running calls by request id, of which several may share one, as clients choose them."""

    def __init__(self, max_queued_tokens: int | None = None, engine_began: Callable[[], float] = float) -> None:
        """`max_queued_tokens` bounds the prompts of all calls that have no first token; None is no bound.

        For `engine_began` see ServingRuntime.
        """
        self._max_queued_tokens = max_queued_tokens
        self._engine_began = engine_began
        self._calls: dict[str, set[RunningCall]] = {}
        self._error: LmiError | None = None

    def abort(self, request_id: str, client: str | None = None) -> bool:
        """Abort every call of that id, or those of one client, and return whether there was one."""
        calls = [call for call in self._calls.get(request_id, ()) if client in (None, call.client)]
        for call in calls:
            call.abort()
        return bool(calls)

    def abort_one(self, request_id: str, requests: Sequence[ValidRequest]) -> None:
        """Abort the call of that id which has these very requests, and no other one of the id."""
        for call in self._calls.get(request_id, ()):
            if call.requests is requests:
                call.abort()

    def fail_all(self, error: LmiError) -> None:
        """End every call with an error, also those that are yet to begin."""
        self._error = error
        for calls in self._calls.values():
            for call in calls:
                call.fail(error)

    @property
    def queued_tokens(self) -> int:
        """The prompt tokens of the calls that have no first token."""
        return sum([call.queued_tokens for calls in self._calls.values() for call in calls])

    def check_tokens(self, num_tokens: int = 1) -> None:
        """Raise Overloaded where these prompt tokens and those of other calls are too many; alone they never are."""
        if self._max_queued_tokens is None:
            return
        queued = self.queued_tokens
        if queued and queued + num_tokens > self._max_queued_tokens:
            raise Overloaded(
                f"the queue has {queued} prompt tokens of other requests, and with this one it would have more than "
                f"option.max_num_queued_tokens={self._max_queued_tokens}"
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
        """Begin a call of a client that can be aborted from here on; `unit` is what its steps bring, for messages.

        Raise Overloaded where the prompts of its requests are too long beside those of others.
        """
        if self._error is not None:
            raise self._error
        num_tokens = sum([len(request.prompt_ids) for request in requests])
        self.check_tokens(num_tokens)
        num_sequences = sum([each.parameters.num_sequences for each in requests]) or 1
        call = RunningCall(limits, unit, num_tokens, num_sequences, client, self._engine_began)
        call.requests = requests
        self._calls.setdefault(request_id, set()).add(call)
        try:
            yield call
        finally:
            calls = self._calls[request_id]
            calls.discard(call)
            if not calls:
                del self._calls[request_id]


class RunningCall:
    """One task's waits for steps, which an abort or a time limit interrupts, but never the sending of a step."""

    def __init__(
        self,
        limits: TimeLimits,
        unit: str = "token",
        num_prompt_tokens: int = 0,
        num_sequences: int = 1,
        client: str = "",
        engine_began: Callable[[], float] = float,
    ) -> None:
        self.client = client
        self.requests: Sequence[ValidRequest] = ()
        self._engine_began = engine_began
        self.aborted = False
        self.num_sequences = num_sequences
        self._num_prompt_tokens = num_prompt_tokens
        self._failure: LmiError | None = None
        self._limits = limits
        self._unit = unit
        self._cut = asyncio.timeout(None)
        self._is_cut = False
        self._late: LmiError | None = None  # the limit that has cut the call
        self._waiting = False
        self._arrived = asyncio.get_running_loop().time()
        self._begun: float | None = None  # when its turn came
        self._last: float | None = None  # when the wait for another step than the first began

    @property
    def queued_tokens(self) -> int:
        """The prompt tokens until the first token comes, then 0."""
        return self._num_prompt_tokens if self._last is None else 0

    def abort(self) -> None:
        self.aborted = True
        self._cut_short()

    def fail(self, error: LmiError) -> None:
        """Raise the error in place of the next step."""
        self._failure = error
        self._cut_short()

    def is_unread(self) -> bool:
        """Return whether the client has yet to read the last step, so that nobody waits for another."""
        return not self._waiting

    def begin(self) -> None:
        """Note that the call's turn has come."""
        if self._begun is None:
            self._begun = asyncio.get_running_loop().time()

    @asynccontextmanager
    async def watched(self, turn: Turn, *, waits_for_first_token: bool = True) -> AsyncIterator[None]:
        """Interrupt the body if it waits too long for the call's turn, or for a step.

        Raise QueueTimeout or GenerationTimeout then, or what `fail` was given. An abort ends the body without an error.
        A wait for the turn that has no limit counts toward the time to the first token if `waits_for_first_token`.
        """
        if not turn.waits or (self._limits.queue >= NONE and waits_for_first_token):
            self.begin()
        self._watch = self._look_again() if self._limits.shortest < NONE else None
        try:
            async with self._cut:
                self._waiting = True
                yield
        except TimeoutError:
            if not self._cut.expired():  # the engine's own
                raise
            if self._failure is not None:
                raise self._failure from None
            if not self.aborted and self._late is not None:
                raise self._late from None
        finally:
            self._waiting = False
            if self._watch is not None:
                self._watch.cancel()

    async def wait_for(self, turn: Turn) -> None:
        """Wait until the call's turn has come."""
        if turn.waits:
            await turn.come()
            self.begin()

    def step_came(self) -> None:
        """Note that a step is here, and is sent: nothing interrupts that."""
        self._waiting = False
        if self._is_cut:  # too late
            self._cut.reschedule(None)
            self._is_cut = False

    def waits_on(self) -> bool:
        """Begin the wait for another step, or return False after an abort. Raise what `fail` was given."""
        if self._failure is not None:
            raise self._failure
        if self.aborted:
            return False
        self._last, self._waiting = asyncio.get_running_loop().time(), True
        return True

    def _look(self) -> None:
        """Check the wait, and again when it may be too long, which is cheaper than a timer per step."""
        since, seconds, error = self._phase()
        if self._waiting and asyncio.get_running_loop().time() - since >= seconds and not self._is_cut:
            self._late = error()
            self._cut_short()
        self._watch = self._look_again()

    def _look_again(self) -> asyncio.TimerHandle:
        """Look when the present phase will be too long, and before a later one that begins soon could be."""
        loop = asyncio.get_running_loop()
        since, seconds, _ = self._phase()
        left = since + seconds - loop.time() if self._waiting and not self._is_cut else NONE
        return loop.call_later(min(left, self._limits.shortest), self._look)

    def _phase(self) -> tuple[float, float, Callable[[], LmiError]]:
        """Return when the present phase began, how many seconds it may take, and the error where it takes longer.

        The wait for a token begins anew with each engine, as a replaced one takes its requests along.
        """
        if self._begun is None:
            return self._arrived, self._limits.queue, self._limits.too_long_in_queue
        if self._last is None:
            since = max(self._begun, self._engine_began())
            return since, self._limits.first_token, partial(self._limits.no_first, self._unit)
        since = max(self._last, self._engine_began())
        return since, self._limits.inter_token, partial(self._limits.no_further, self._unit)

    def _cut_short(self) -> None:
        if self._waiting and not self._is_cut:  # once is enough: a timeout that is passing cannot be changed
            self._is_cut = True
            self._cut.reschedule(0)
