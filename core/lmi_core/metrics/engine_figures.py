"""The figures that an engine reports."""

import msgspec
from msgspec.structs import replace


class EngineFigures(msgspec.Struct, array_like=True, frozen=True):
    """The current state of an engine, and its counts since the server started; None for figures that it does not
    report.
    """

    running: int | None = None  # sequences that it generates
    waiting: int | None = None  # sequences that wait for their turn in it
    cache_usage: float | None = None  # the share of the KV cache that running sequences hold, from 0 to 1
    looked_up_tokens: int | None = None  # prompt tokens that were looked for in the prefix cache
    cached_tokens: int | None = None  # of those, the ones that were found
    restarts: int = 0  # of its process, or of workers
    workers: int | None = None  # processes of the model function

    def after(self, before: "EngineFigures") -> "EngineFigures":
        """Return the figures of an engine plus the counts of its predecessors."""
        return replace(
            self,
            looked_up_tokens=_sum(self.looked_up_tokens, before.looked_up_tokens),
            cached_tokens=_sum(self.cached_tokens, before.cached_tokens),
        )

    def idle(self) -> "EngineFigures":
        """Return the figures that remain when the engine has ended: its counts."""
        return replace(self, running=0, waiting=0, cache_usage=None if self.cache_usage is None else 0.0)


def _sum(one: int | None, other: int | None) -> int | None:
    return one if other is None else other + (one or 0)
