"""What a chat template may use: a template is a program, and a hostile one would never end or fill the memory."""

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from lmi_core.calls.haste import NeedsTimeError, hasty_deadline

# Far beyond what templates of models need: a prompt of a million tokens has some five million characters.
MAX_SECONDS = 2.0  # of processor time
MAX_TEXT = 8 * 2**20  # characters of one text
MAX_CHARACTERS = 32 * MAX_TEXT  # of all texts that are made on the way
MAX_ITEMS = 300_000
MAX_BITS = 4096  # of a number
STEPS_PER_LOOK = 16  # at the clock


class TemplateTooCostlyError(Exception):
    """A template that uses more than it may."""


class Budget:
    """What is left for one chat."""

    def __init__(self) -> None:
        self._hasty = hasty_deadline()
        self._deadline = time.thread_time() + MAX_SECONDS
        self._steps = 0
        self._characters = 0

    def step(self) -> None:
        """Count one step of the program. Raise TemplateTooCostlyError, or NeedsTimeError where it has to give way."""
        self._steps += 1
        if self._steps % STEPS_PER_LOOK:
            return
        now = time.thread_time()
        if now > self._deadline:
            raise TemplateTooCostlyError(f"it takes more than {MAX_SECONDS:g} seconds")
        if self._hasty is not None and now > self._hasty:
            raise NeedsTimeError

    def text(self, length: int) -> None:
        """Count a text that is made. Raise TemplateTooCostlyError."""
        self._characters += length
        if length > MAX_TEXT or self._characters > MAX_CHARACTERS:
            raise TemplateTooCostlyError(f"it makes texts of more than {MAX_TEXT} characters")

    def items(self, count: int) -> None:
        """Check the length of a list that is made. Raise TemplateTooCostlyError."""
        if count > MAX_ITEMS:
            raise TemplateTooCostlyError(f"it makes lists of more than {MAX_ITEMS} items")

    def walk(self, value: object) -> None:
        """Check a value that is written, compared or sorted, in which a list may be many times."""
        left, count, characters = [value], 0, 0
        while left:
            each = left.pop()
            count += 1
            self.step()
            if isinstance(each, str):
                characters += len(each)
            elif isinstance(each, Mapping):
                left += [*each, *each.values()]
            elif isinstance(each, list | tuple | set):
                left += each
            self.items(count + len(left))
        if characters > MAX_TEXT:
            self.text(characters)

    def value(self, value: object) -> None:
        """Check a value that an operation has made."""
        if isinstance(value, str | bytes):
            self.text(len(value))
        elif isinstance(value, int):
            if value.bit_length() > MAX_BITS:
                raise TemplateTooCostlyError(f"it makes numbers of more than {MAX_BITS} bits")
        elif isinstance(value, Collection):
            self.items(len(value))


class _Current(threading.local):
    budget: Budget | None = None


_current = _Current()


@contextmanager
def budget_for_a_chat() -> Iterator[None]:
    """Give the templates that this thread renders meanwhile a budget of their own."""
    before, _current.budget = _current.budget, Budget()
    try:
        yield
    finally:
        _current.budget = before


def budget() -> Budget:
    """Return what is left for the chat that this thread renders."""
    if _current.budget is None:
        raise RuntimeError("a bounded template is rendered outside of a budget")
    return _current.budget
