"""The progress of loading one model: the current stage, its bytes, and its duration."""

import time
from collections.abc import Callable

from lmi_core.errors.sizes import readable

Report = Callable[[str, int | None, int | None], None]  # the stage; bytes done and total, if known


def unheard(what: str, done: int | None, total: int | None) -> None:
    """Report to nobody."""


class LoadingProgress:
    """The current stage of loading a model; can be reported from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: float | None = None
        self._stage: tuple[str, int | None, int | None] = ("", None, None)

    def report(self, what: str, done: int | None = None, total: int | None = None) -> None:
        """Set the current stage, and its bytes done and in total."""
        if self._began is None:
            self._began = self._clock()
        self._stage = (what, done, total)

    @property
    def what(self) -> str:
        """The current stage; "" before the first report."""
        return self._stage[0]

    @property
    def share(self) -> float | None:
        """The share of the bytes that is done; None if unknown."""
        _, done, total = self._stage
        return None if done is None or not total else min(done / total, 1.0)

    @property
    def seconds(self) -> float:
        """The time since the first report."""
        return 0.0 if self._began is None else self._clock() - self._began

    def __str__(self) -> str:
        """Return one line, such as `reading weights, 1.2 GB of 14 GB, 3 s`."""
        what, done, total = self._stage
        size = "" if done is None else f", {readable(done)}" + ("" if total is None else f" of {readable(total)}")
        return f"{what}{size}, {self.seconds:.0f} s"
