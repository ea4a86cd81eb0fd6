"""A request's steps on their way from the worker to their reader."""

import asyncio
from collections.abc import Callable
from typing import Self

from lmi_core.errors import LmiError
from lmi_core.generation.coalescing import OutputCoalescing
from lmi_core.generation.output import GenerationStep
from lmi_plugins.torch_engine.messages.results import extend_step


class StepQueue:
    """The unread steps of one request, which its reader iterates over.

    Those of the same sequence are merged while nobody reads them; under load, the reader waits for several.
    """

    def __init__(
        self,
        sequences: int,
        coalescing: OutputCoalescing,
        on_complete: Callable[[], None],
        end: Callable[[], object] = lambda: None,
    ) -> None:
        """`on_complete` is called when the last step arrives; `end` when that step is read, or by `aclose`."""
        self._steps: dict[int, GenerationStep] = {}  # not yet read, by sequence
        self._unfinished = sequences
        self._error: LmiError | None = None
        self._on_complete = on_complete
        self._end = end
        self._ready = asyncio.Event()
        self._begun = self._closed = False  # whether the first step was read, and the last
        self._coalescing, self._stream = coalescing, coalescing.begin()

    def put(self, step: GenerationStep) -> None:
        """Add a step to the readable ones."""
        earlier = self._steps.get(step.sequence_index)
        if earlier is None:
            self._steps[step.sequence_index] = step
        else:
            extend_step(earlier, step)
        if step.finish_reason is not None:
            self._unfinished -= 1
            if not self._unfinished:
                self._complete()
        self._ready.set()

    def fail(self, error: LmiError) -> None:
        """Raise the error to the reader once all earlier steps are read."""
        self._error = error
        self._complete()
        self._ready.set()

    def _complete(self) -> None:
        self._stream.end()
        self._on_complete()

    @property
    def complete(self) -> bool:
        """Whether every step has arrived, read or not."""
        return not self._unfinished

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> GenerationStep:
        if self._begun and self._coalescing.delay:
            await self._stream.wait()
        while not self._steps:
            if self._error is not None:
                raise self._error
            if not self._unfinished:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        self._begun = True
        step = self._steps.pop(next(iter(self._steps)))
        if not self._unfinished and not self._steps:
            self._close()
        return step

    async def aclose(self) -> None:
        """End the request, in its engine too."""
        self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._stream.close()
            self._end()
