"""Log lines of requests that an overloaded server refuses: the first of each second, and the number of others."""

import asyncio
import logging
from collections.abc import Callable

LINES = 10  # of each second
SECONDS = 1.0


class Refusals:
    """A limit on log lines about refusals; under heavy load, logging would cost more than refusing."""

    def __init__(self, report: Callable[[int], None]) -> None:
        """`report` gets the number of omitted lines, at most once per second."""
        self._report = report
        self._lines = 0
        self._left_out = 0
        self._loop: asyncio.AbstractEventLoop | None = None  # of the second that has begun

    def may_log(self) -> bool:
        """Return whether to log one more refusal; otherwise, count it."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._lines, self._left_out = loop, 0, 0
            loop.call_later(SECONDS, self._end_second)
        self._lines += 1
        if self._lines <= LINES:
            return True
        self._left_out += 1
        return False

    def _end_second(self) -> None:
        left_out, self._loop, self._lines, self._left_out = self._left_out, None, 0, 0
        if left_out:
            self._report(left_out)


def refusals_of(logger: logging.Logger) -> Refusals:
    """Return a limit that reports omitted lines in this log."""
    return Refusals(lambda count: logger.info("%d more requests were refused for overload within a second", count))
