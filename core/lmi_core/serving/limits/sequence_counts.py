"""How many of a model's sequences are generated now, and how many wait for that."""

from typing import Any, NamedTuple, Protocol, Self

from lmi_core.serving.dynamic_batch import DynamicBatch
from lmi_core.serving.limits.turns import Turns
from lmi_core.serving.places import Places
from lmi_core.serving_runtime import ServingRuntime


class Queued(Protocol):
    """A model, as seen by whoever counts its sequences."""

    @property
    def places(self) -> Places: ...

    @property
    def turns(self) -> Turns: ...

    @property
    def dynamic_batch(self) -> DynamicBatch | None: ...

    @property
    def runtime(self) -> ServingRuntime[Any]: ...


class SequenceCounts(NamedTuple):
    """The sequences that have a place in a model's queue; may be counted in any thread."""

    running: int
    waiting: int  # in the server, or in the engine or the function's processes

    @classmethod
    def of(cls, model: Queued) -> Self:
        """Return the counts; an engine that does not tell is taken to work on all that it has been given."""
        taken, running = model.places.taken, model.runtime.figures().running
        if running is None:
            batch = model.dynamic_batch
            running = taken - model.turns.waiting - (0 if batch is None else batch.waiting)
        running = max(0, min(running, taken))  # the engine may have told it before the last requests ended
        return cls(running, taken - running)
