"""The times in Ollama's answers."""

import time
from datetime import UTC, datetime


class Stopwatch:
    """The times of one answer in nanoseconds, from its creation on."""

    def __init__(self) -> None:
        self._begun = time.perf_counter_ns()
        self._first: int | None = None

    def note_step(self) -> None:
        """Record a generation step; the first one ends the prompt's time."""
        if self._first is None:
            self._first = time.perf_counter_ns()

    def durations(self, prompt_tokens: int, tokens: int) -> dict[str, int]:
        """Return the members for times and counts; the prompt's time includes that in the queue."""
        now = time.perf_counter_ns()
        first = now if self._first is None else self._first
        return {
            "total_duration": now - self._begun,
            "load_duration": 0,  # the model is loaded before the server accepts requests
            "prompt_eval_count": prompt_tokens,
            "prompt_eval_duration": first - self._begun,
            "eval_count": tokens,
            "eval_duration": max(now - first, 1),  # clients divide by it
        }


def written_time(seconds: float | None = None) -> str:
    """Return a time since 1970, by default now, in the form of RFC 3339."""
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
