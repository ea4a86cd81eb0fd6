"""Decode steps on inputs that stay where they are, which is what a CUDA graph needs; here they run again instead."""

import logging
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.requests import EngineRequest
from lmi_plugins.torch_engine.model import runner_choice
from lmi_plugins.torch_engine.model.decode_graphs import Pass
from tests.plugins.torch_engine.conftest import ModelDirectory
from tests.plugins.torch_engine.tiny_models import ids, make_engine, request, run

# Contexts of one and of several blocks, and more of them than a power of two.
PROMPTS = [[5], [6, 7, 8], list(range(20, 60)), [9, 10], list(range(100, 117))]


class FixedInputs(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A pass in which nothing but numbers comes from Python, and nothing goes there: a graph would not repeat that."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        assert name != "_local_scalar_dense", "a value is read"
        assert name not in ("lift_fresh", "lift_fresh_copy") or not args[0].dim(), "a tensor is made of Python's values"
        return function(*args, **(kwargs or {}))


class Captures:
    """A capture on the CPU: it runs the pass again, and counts both."""

    def __init__(self) -> None:
        self.captured = self.repeated = 0

    def __call__(self, run: Pass) -> Pass:
        self.captured += 1

        def repeat() -> torch.Tensor:
            self.repeated += 1
            with FixedInputs():  # type: ignore[no-untyped-call]
                return run()

        return repeat


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Captures:
    captures = Captures()
    monkeypatch.setattr(runner_choice, "capture_for", lambda *_: captures)
    return captures


def greedy(count: int = 40, **parameters: object) -> list[EngineRequest]:
    return [request(str(index), ids, max_new_tokens=count, **parameters) for index, ids in enumerate(PROMPTS)]


def generated(engine: Engine, requests: list[EngineRequest]) -> dict[str, list[int]]:
    return {name: ids(results) for name, results in run(engine, *requests).items()}


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "gpt_oss", "gpt2", "bloom", "gptj"])
def test_captured_steps_give_the_same_tokens(
    architecture: str, captures: Captures, model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows, soft caps, sinks and ALiBi included, in steps of rows to spare."""
    captured = generated(make_engine(model_directory(architecture)), greedy())
    assert captures.captured
    assert captures.repeated > 30

    monkeypatch.undo()
    assert captured == generated(make_engine(model_directory(architecture)), greedy())


def test_each_shape_is_captured_once(captures: Captures, model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory("llama"))
    generated(engine, greedy())
    first = captures.captured
    generated(engine, greedy())
    assert captures.captured == first


@pytest.mark.parametrize("architecture", ["mamba", "qwen3_5_text"])
def test_models_with_states_are_not_captured(
    architecture: str, captures: Captures, model_directory: ModelDirectory
) -> None:
    generated(make_engine(model_directory(architecture)), greedy(3))
    assert not captures.captured


def test_a_model_that_cannot_be_captured_runs_without(
    model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[Pass] = []

    def capture(run: Pass) -> Pass:
        attempts.append(run)
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    expected = generated(make_engine(model_directory("llama")), greedy(5))
    monkeypatch.setattr(runner_choice, "capture_for", lambda *_: capture)
    with caplog.at_level(logging.WARNING):
        assert generated(make_engine(model_directory("llama")), greedy(5)) == expected
    assert len(attempts) == 1
    (record,) = caplog.records
    assert record.getMessage() == (
        "Decode steps run without CUDA graphs, which is slower: operation not permitted when stream is capturing"
    )


def test_a_step_too_large_for_the_memory_leaves_smaller_ones_captured(
    model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def capture(run: Pass) -> Pass:
        attempts.append(len(run()))
        if attempts[-1] > 2:
            raise torch.OutOfMemoryError
        return run

    engine = make_engine(model_directory("llama"))
    expected = generated(engine, greedy(5))
    monkeypatch.setattr(runner_choice, "capture_for", lambda *_: capture)
    engine = make_engine(model_directory("llama"))
    assert generated(engine, greedy(5)) == expected
    assert generated(engine, greedy(5)[:2]) == dict(list(expected.items())[:2])
    assert attempts == [8, 2]
