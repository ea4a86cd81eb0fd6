from collections.abc import Iterator

import pytest
import torch

from lmi_plugins.torch_engine.model import threads
from lmi_plugins.torch_engine.model.threads import FEW_TOKENS, Threads
from tests.plugins.torch_engine.conftest import ReferenceModel


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_a_small_model_takes_one_thread_for_few_tokens(reference: ReferenceModel) -> None:
    chosen = Threads(reference("llama"), None)
    for tokens, expected in ((1, 1), (FEW_TOKENS + 1, 2), (FEW_TOKENS, 1)):
        chosen.use(tokens)
        assert torch.get_num_threads() == expected


def test_a_larger_model_takes_all(reference: ReferenceModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "FEW_PARAMETERS", 0)
    Threads(reference("llama"), None).use(1)
    assert torch.get_num_threads() == 2


def test_as_many_as_are_asked_for(reference: ReferenceModel) -> None:
    chosen = Threads(reference("llama"), 3)
    for tokens in (1, FEW_TOKENS + 1):
        chosen.use(tokens)
        assert torch.get_num_threads() == 3
