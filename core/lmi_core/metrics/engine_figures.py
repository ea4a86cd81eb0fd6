"""The figures that an engine reports."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace


class EngineFigures(msgspec.Struct, array_like=True, frozen=True):
    """The current state of an engine, and its counts since the server started; None for figures that it does not
    report.
    """

    running: int | None = None  # running sequences
    waiting: int | None = None  # waiting sequences
    cache_usage: float | None = None  # the share of the KV cache that running sequences hold, from 0 to 1
    looked_up_tokens: int | None = None  # prompt tokens looked up in the prefix cache
    cached_tokens: int | None = None  # prompt tokens found in the prefix cache
    restarts: int = 0  # restarts of the engine's process, or of workers
    workers: int | None = None  # processes of the model function
    # Sequences by engine number, starting at 1, if there may be several engines
    sequences: dict[int, int] | None = None

    @classmethod
    def together(cls, engines: "Sequence[EngineFigures]") -> "EngineFigures":
        """Return the figures of a model's engines: sums, and the mean of cache usages."""
        if len(engines) == 1:
            return engines[0]
        usages = [each.cache_usage for each in engines if each.cache_usage is not None]
        return cls(
            _total(each.running for each in engines),
            _total(each.waiting for each in engines),
            sum(usages) / len(usages) if usages else None,
            _total(each.looked_up_tokens for each in engines),
            _total(each.cached_tokens for each in engines),
            sum(each.restarts for each in engines),
        )

    def after(self, before: "EngineFigures") -> "EngineFigures":
        """Return the figures of an engine plus the counts of its predecessors."""
        return replace(
            self,
            looked_up_tokens=_total((self.looked_up_tokens, before.looked_up_tokens)),
            cached_tokens=_total((self.cached_tokens, before.cached_tokens)),
        )

    def idle(self) -> "EngineFigures":
        """Return the figures that remain when the engine has ended: its counts."""
        return replace(self, running=0, waiting=0, cache_usage=None if self.cache_usage is None else 0.0)


def _total(figures: Iterable[int | None]) -> int | None:
    """Return the sum of the known figures; None without any."""
    known = [each for each in figures if each is not None]
    return sum(known) if known else None
