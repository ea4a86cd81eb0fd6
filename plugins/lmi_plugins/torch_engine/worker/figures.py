"""The figures that the torch engine's worker reports."""

from collections.abc import Callable
from time import monotonic

from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.workers.messages import encode
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.protocol import Figures

INTERVAL = 0.25  # seconds between two tellings, but for the one when the engine has no more work


class FiguresReport:
    """A report of changed figures, rare enough to cost nothing per step."""

    def __init__(self, engine: Engine, send: Callable[[bytes], None]) -> None:
        self._engine = engine
        self._send = send
        self._told = EngineFigures()
        self._next = 0.0

    def report(self) -> None:
        """Send the figures, if it is time."""
        now = monotonic()
        if now < self._next and self._engine.has_work:
            return
        self._next = now + INTERVAL
        figures = read_figures(self._engine)
        if figures != self._told:
            self._told = figures
            self._send(encode(Figures(figures)))


def read_figures(engine: Engine) -> EngineFigures:
    """Return the engine's figures, counted since its worker started."""
    parts = engine.parts
    prefixes = parts.prefix_cache
    return EngineFigures(
        running=parts.scheduler.num_running,
        waiting=parts.scheduler.num_waiting + len(parts.guides.waiting),
        cache_usage=1 - parts.pool.free / parts.pool.size,
        looked_up_tokens=None if prefixes is None else prefixes.prompt_tokens,
        cached_tokens=None if prefixes is None else prefixes.cached_tokens,
    )
