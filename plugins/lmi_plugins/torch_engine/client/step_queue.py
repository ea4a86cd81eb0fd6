"""A request's steps on their way from the worker to their reader."""

import asyncio
from collections.abc import Callable

from lmi_core.errors import LmiError
from lmi_core.generation.output import GenerationStep
from lmi_plugins.torch_engine.messages.results import extend_step


class StepQueue:
    """The unread steps of one request; those of the same sequence are merged while they are unread."""

    def __init__(self, sequences: int, on_complete: Callable[[], None]) -> None:
        self._steps: dict[int, GenerationStep] = {}  # not yet read, by sequence
        self._unfinished = sequences
        self._error: LmiError | None = None
        self._on_complete = on_complete
        self._ready = asyncio.Event()

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
                self._on_complete()
        self._ready.set()

    def fail(self, error: LmiError) -> None:
        """Make `get` raise the error once all earlier steps are read."""
        self._error = error
        self._on_complete()
        self._ready.set()

    @property
    def complete(self) -> bool:
        """Whether every step has arrived, read or not."""
        return not self._unfinished

    @property
    def read(self) -> bool:
        """Whether every step has arrived and been read."""
        return not self._unfinished and not self._steps

    async def get(self) -> GenerationStep:
        """Return the next step, waiting for it; raise the error that the request has failed with."""
        while not self._steps:
            if self._error is not None:
                raise self._error
            self._ready.clear()
            await self._ready.wait()
        return self._steps.pop(next(iter(self._steps)))
