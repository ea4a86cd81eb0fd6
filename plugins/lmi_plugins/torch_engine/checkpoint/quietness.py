"""A context in which transformers prints nothing; its reports and progress bars are for notebooks."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging as transformers_logging

logger = logging.getLogger(__name__)


@contextmanager
def quiet() -> Iterator[None]:
    """Draw no progress bar, and log transformers' long table of wrong weights only at level debug."""
    verbosity, drawn = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    if not logger.isEnabledFor(logging.DEBUG):
        transformers_logging.set_verbosity(logging.ERROR)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if drawn:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
