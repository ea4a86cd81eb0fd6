"""Contexts in which transformers prints nothing; its reports and progress bars are for notebooks."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging as transformers_logging

logger = logging.getLogger(__name__)


@contextmanager
def without_report() -> Iterator[None]:
    """Log transformers' long table of wrong weights only at level debug."""
    verbosity = transformers_logging.get_verbosity()
    if not logger.isEnabledFor(logging.DEBUG):
        transformers_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)


@contextmanager
def without_progress_bar() -> Iterator[None]:
    """Draw no progress bar on standard error."""
    drawn = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if drawn:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
