"""Adapters that stay on the device whichever others are used."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmi_core.errors import AdapterNotFound, InvalidAdapter
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.requests import EngineRequest, SamplingParameters
from tests.plugins.torch_engine.adapters.lora_adapters import merged_model, save_adapter
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import ids, make_engine, reference_ids, run

PROMPT = [5, 9, 200, 31, 77]
COUNT = 6
NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory, reference: ReferenceModel) -> dict[str, str]:
    base = tmp_path_factory.mktemp("adapters")
    return {name: str(save_adapter(base / name, reference("llama"), seed)) for seed, name in enumerate(NAMES)}


@pytest.fixture
def engine(model_directory: ModelDirectory, directories: dict[str, str]) -> Engine:
    return make_engine(model_directory("llama"), adapters=directories, max_loras=3, max_batch_size=8)


@pytest.fixture
def fills(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the adapters that are put on the device, one after the other."""
    store, filled = engine.adapters, list[str]()
    load = store._load

    def watched(adapter: Any, *needed: Any) -> None:
        load(adapter, *needed)
        filled.append(adapter.name)

    monkeypatch.setattr(store, "_load", watched)
    return filled


def ask(name: str, count: int = COUNT, request_id: str = "") -> EngineRequest:
    return EngineRequest(request_id or name, PROMPT, SamplingParameters(max_new_tokens=count), name)


@pytest.fixture(scope="module")
def expected(model_directory: ModelDirectory, directories: dict[str, str]) -> Callable[[str], list[int]]:
    known: dict[str, list[int]] = {}

    def tokens(name: str) -> list[int]:
        if name not in known:
            model = merged_model(model_directory("llama"), Path(directories[name]))
            known[name] = reference_ids(model, PROMPT, COUNT)
        return known[name]

    return tokens


def test_pinned_adapter_stays_whichever_others_are_used(
    engine: Engine, fills: list[str], expected: Callable[[str], list[int]]
) -> None:
    engine.adapters.pin("a", True)
    assert fills == ["a"]  # at once, not by its first request
    for name in ("b", "c", "d", "e", "a"):
        assert ids(run(engine, ask(name))[name]) == expected(name)
    assert fills == ["a", "b", "c", "d", "e"]
    engine.adapters.pin("a", False)
    for name in ("b", "c", "d", "a"):
        assert ids(run(engine, ask(name))[name]) == expected(name)
    assert fills[5:].count("a") == 1


def test_unpinned_ones_share_the_other_slots(
    engine: Engine, fills: list[str], expected: Callable[[str], list[int]]
) -> None:
    """All at once: a request waits where its adapter would displace a pinned one or one that runs."""
    for name in ("a", "b"):
        engine.adapters.pin(name, True)
    for name, result in run(engine, *(ask(name) for name in reversed(NAMES))).items():
        assert ids(result) == expected(name)
    assert sorted(fills) == sorted(NAMES)  # none came twice


def test_pin_while_others_run_in_every_slot(
    engine: Engine, fills: list[str], expected: Callable[[str], list[int]]
) -> None:
    for name in ("c", "d", "e"):
        engine.add(ask(name))
    found: dict[str, list[int]] = {name: [] for name in NAMES}

    def step() -> None:
        for request_id, result in engine.step():
            found[request_id] += ids([result])

    step()
    engine.adapters.pin("a", True)
    step()
    engine.add(ask("a"))
    engine.add(ask("b"))
    while engine.has_work:
        step()
    assert found == {name: expected(name) for name in NAMES}


def test_one_slot_is_left_for_the_others(engine: Engine) -> None:
    for name in ("a", "b", "b"):
        engine.adapters.pin(name, True)
    with pytest.raises(InvalidAdapter) as failed:
        engine.adapters.pin("c", True)
    assert failed.value.message == (
        "adapter c cannot be pinned: at most 2 can, so that other adapters can be used too (option.max_loras=3). "
        "Pinned: a, b"
    )
    engine.adapters.remove("a")
    engine.adapters.pin("c", True)
    with pytest.raises(AdapterNotFound):
        engine.adapters.pin("a", False)


def test_pin_is_of_the_name(
    engine: Engine, fills: list[str], directories: dict[str, str], expected: Callable[[str], list[int]]
) -> None:
    engine.adapters.pin("a", True)
    engine.load_adapter("a", Path(directories["b"]))
    assert fills == ["a", "a"]
    for name in ("c", "d", "e"):
        run(engine, ask(name))
    assert ids(run(engine, ask("a"))["a"]) == expected("b")
    assert fills == ["a", "a", "c", "d", "e"]


def test_pinned_adapter_stays_in_main_memory(
    model_directory: ModelDirectory, directories: dict[str, str], expected: Callable[[str], list[int]]
) -> None:
    engine = make_engine(model_directory("llama"), adapters=directories, max_loras=2, max_cpu_loras=1)
    engine.adapters.pin("a", True)
    for name in ("b", "c", "a", "d"):
        assert ids(run(engine, ask(name))[name]) == expected(name)
    assert engine.adapters.get("a").weights is not None
    assert engine.adapters.get("c").weights is None


def test_engine_that_starts_again_has_those_that_are_left(
    model_directory: ModelDirectory,
    directories: dict[str, str],
    tmp_path: Path,
    expected: Callable[[str], list[int]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {"adapters": directories | {"gone": str(tmp_path / "gone")}, "pinned_adapters": ["gone", "b"]}
    with caplog.at_level(logging.ERROR):
        engine = make_engine(model_directory("llama"), leaves_out_adapters=True, **options)
    assert engine.adapters.names == list(NAMES)
    assert [each.name for each in engine.adapters.pinned()] == ["b"]
    assert "the adapter gone could not be loaded again and was removed" in caplog.text
    assert ids(run(engine, ask("b"))["b"]) == expected("b")
