from collections.abc import Iterator

import pytest

from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel, model_directory, one_thread, reference
from tests.plugins.trtllm.asking import Asker

__all__ = ["ModelDirectory", "ReferenceModel", "model_directory", "one_thread", "reference"]


@pytest.fixture(scope="module")
def asker(model_directory: ModelDirectory) -> Iterator[Asker]:
    """Yield a client of a manager of a small Llama with default options, for tests that leave no state in it."""
    with Asker(model_directory("llama")) as asker:
        yield asker
