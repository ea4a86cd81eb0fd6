"""A function whose duration depends on a client's text, within a deadline."""

from collections.abc import Callable
from functools import partial
from typing import Generic, ParamSpec, TypeVar

from lmi_core.deadlines.event_loop import NeedsTimeError, on_event_loop
from lmi_core.deadlines.helper_threads import HelperThreads, TooLateError

P = ParamSpec("P")
T = TypeVar("T")

LOOP_SECONDS = 0.01  # that the event loop waits for the thread
THREAD_SECONDS = 1.0  # that the thread may take before a process repeats the work
MAX_SECONDS = 2.0  # of CPU time in that process
CHARACTERS_PER_SECOND = 200_000  # adds to the limit; tokenizers are ten times as fast


def seconds_for(characters: int) -> float:
    """Return the CPU time that work on a client's text may take."""
    return MAX_SECONDS + characters / CHARACTERS_PER_SECOND


class Bounded(Generic[P, T]):
    """A function that runs in this process if it is fast, and otherwise in a process that can be killed."""

    def __init__(self, function: Callable[P, T], apart: Callable[..., T]) -> None:
        """`apart` calls the same function in another process; its first argument is the CPU time."""
        self._function, self._apart = function, apart
        self._threads = HelperThreads()

    def run(self, characters: int, *arguments: P.args, **named: P.kwargs) -> T:
        """Call the function and return its result. Raise NeedsTimeError on the event loop, and CallTooCostlyError."""
        seconds = LOOP_SECONDS if on_event_loop() else THREAD_SECONDS + characters / CHARACTERS_PER_SECOND
        try:
            return self._threads.run(seconds, partial(self._function, *arguments, **named))
        except TooLateError:
            return self.run_apart(characters, *arguments, **named)

    def run_apart(self, characters: int, *arguments: P.args, **named: P.kwargs) -> T:
        """Call the function in another process and return its result."""
        if on_event_loop():
            raise NeedsTimeError
        return self._apart(seconds_for(characters), *arguments, **named)
