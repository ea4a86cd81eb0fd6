from typing import Any

import pytest
import torch

from lmi_core.errors import GenerationFailed
from lmi_plugins.torch_engine.model.row_runner import RowRunner
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import (
    CONTEXT,
    ids,
    make_engine,
    reference_ids,
    reference_model,
    request,
    run,
)

PROMPT = [5, 9, 200, 31, 77]


def test_an_exception_in_one_sequence_fails_it_alone(
    model_directory: ModelDirectory, reference: ReferenceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(model_directory("trocr"))
    assert isinstance(engine.runner, RowRunner)
    forward = engine.runner._forward

    def fail_at_7(token_ids: list[int], *arguments: Any) -> tuple[torch.Tensor, object]:
        if 7 in token_ids:
            raise RuntimeError("broken")
        return forward(token_ids, *arguments)

    monkeypatch.setattr(engine.runner, "_forward", fail_at_7)
    results = run(engine, request("bad", [3, 7]), request("good", PROMPT, max_new_tokens=8))
    assert [type(result) for result in results["bad"]] == [GenerationFailed]
    assert ids(results["good"]) == reference_ids(reference("trocr"), PROMPT, 8)


def test_block_bytes_are_what_the_cache_takes(model_directory: ModelDirectory) -> None:
    assert RowRunner(reference_model(model_directory("trocr")), CONTEXT).block_bytes == 16 * 2 * 2 * 32 * 4
    assert RowRunner(reference_model(model_directory("mamba")), CONTEXT).block_bytes == 0


def test_models_that_keep_nothing_start_anew_each_time(
    model_directory: ModelDirectory, reference: ReferenceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = RowRunner._forward

    def keep_nothing(self: RowRunner, *arguments: Any) -> tuple[torch.Tensor, object]:
        return forward(self, *arguments)[0], None

    monkeypatch.setattr(RowRunner, "_forward", keep_nothing)
    engine = make_engine(model_directory("trocr"), max_prefill_tokens=3)
    assert ids(run(engine, request("a", PROMPT, max_new_tokens=8))["a"]) == reference_ids(reference("trocr"), PROMPT, 8)
