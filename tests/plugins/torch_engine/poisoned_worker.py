"""Workers of the torch engine whose steps fail while a marked request is in them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from lmi_core.workers.channel import Channel

POISON = [9, 8, 7]  # the prompt of the marked request
TORCH = f"{__name__}:run_torch"  # a target of workers


@contextmanager
def importable_in_workers() -> Iterator[pytest.MonkeyPatch]:
    """Have workers that are started meanwhile find this module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[3]), prepend=":")
        yield patch


def run_torch(channel: Channel) -> None:
    from lmi_plugins.torch_engine.worker.start import run

    with _poisoned():
        run(channel)


@contextmanager
def _poisoned() -> Iterator[None]:
    from lmi_plugins.torch_engine.engine.engine import Engine

    compute = Engine._run

    def failing(self: Engine, chunks: Any) -> Any:
        if any(chunk.sequence.token_ids[: len(POISON)] == POISON for chunk in chunks):
            raise ValueError("poisoned")
        return compute(self, chunks)

    with patch.object(Engine, "_run", failing):
        yield
