"""The calls that a model works on, each of which somebody else may end."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from lmi_core.generation import GenerationStep
from lmi_core.merge import PromptStep
from lmi_core.request import ValidRequest


class RunningCalls:
    """By request id, which clients choose: several calls may have the same."""

    def __init__(self) -> None:
        self._calls: dict[str, set[_RunningCall]] = {}

    def abort(self, request_id: str) -> bool:
        """Ends every call of that id; whether there was one."""
        calls = self._calls.get(request_id, set())
        for call in calls:
            call.abort()
        return bool(calls)

    async def until_aborted(
        self, request_id: str, requests: Sequence[ValidRequest], steps: AsyncGenerator[PromptStep, None]
    ) -> AsyncGenerator[PromptStep, None]:
        """The call's steps. Once it is aborted they are closed, and each unfinished sequence ends with `abort`."""
        call = _RunningCall()
        unfinished = _sequences(requests)
        self._calls.setdefault(request_id, set()).add(call)
        try:
            async with aclosing(call.until_aborted(steps)) as until_aborted:
                async for place, step in until_aborted:
                    if step.finish_reason is not None:
                        unfinished.discard((place, step.sequence_index))
                    yield place, step
        finally:
            self._remove(request_id, call)
        if call.aborted:
            for place, index in sorted(unfinished):
                yield place, GenerationStep([], "abort", index)

    def _remove(self, request_id: str, call: "_RunningCall") -> None:
        calls = self._calls[request_id]
        calls.discard(call)
        if not calls:
            del self._calls[request_id]


class _RunningCall:
    def __init__(self) -> None:
        self.aborted = False
        self._waiting: asyncio.Timeout | None = None  # for the next step

    def abort(self) -> None:
        self.aborted = True
        if self._waiting is not None:
            self._waiting.reschedule(0)
            self._waiting = None

    async def until_aborted(self, steps: AsyncGenerator[PromptStep, None]) -> AsyncGenerator[PromptStep, None]:
        """Only the wait for a step is cut short: while a step is being sent, this task is not ours to cancel."""
        scope = asyncio.timeout(None)
        try:
            async with aclosing(steps), scope:
                self._waiting = scope
                async for item in steps:
                    self._waiting = None
                    yield item
                    if self.aborted:
                        return
                    self._waiting = scope
        except TimeoutError:
            if not scope.expired():
                raise
        finally:
            self._waiting = None


def _sequences(requests: Sequence[ValidRequest]) -> set[tuple[int, int]]:
    """As steps name them: the place of the prompt, and the sequence's own."""
    return {(place, i) for place, request in enumerate(requests) for i in range(request.parameters.num_sequences)}
