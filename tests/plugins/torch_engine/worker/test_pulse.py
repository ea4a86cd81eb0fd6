"""Signs of life within a step."""

import time

import pytest

from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.worker.pulse import SECONDS, Pulse
from tests.plugins.torch_engine.tiny_models import request, run


def test_each_layer_of_a_long_prefill_is_a_sign(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    layers, heard = len(engine.parts.model.model.layers), list[int]()
    monkeypatch.setattr(engine.parts.runner, "progress", lambda: heard.append(1))
    run(engine, request("a", list(range(5, 45)), max_new_tokens=1))
    assert len(heard) >= layers


def test_at_most_one_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, clock = list[float](), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    pulse = Pulse(lambda: sent.append(clock[0]))
    for _ in range(40):
        pulse.beat()
        clock[0] += SECONDS / 4
    assert sent == [100.0 + SECONDS * i for i in range(10)]
