from types import SimpleNamespace

import psutil
import pytest

from lmi_plugins.vllm_engine.main_memory import fitting_share, with_fitting_share

GIB = 1 << 30


@pytest.mark.parametrize(
    ("available", "arguments", "environment", "share"),
    [
        (15.5, {}, {}, None),
        (14, {}, {}, 0.78),
        (12, {}, {}, 0.67),
        (12, {"gpu_memory_utilization": "0.5"}, {}, None),
        (12, {"kv_cache_memory_bytes": "1000"}, {}, None),
        (12, {}, {"VLLM_CPU_KVCACHE_SPACE": "4"}, None),
    ],
)
def test_share(
    monkeypatch: pytest.MonkeyPatch,
    available: float,
    arguments: dict[str, str],
    environment: dict[str, str],
    share: float | None,
) -> None:
    memory = SimpleNamespace(available=available * GIB, total=16 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    assert fitting_share(arguments, environment) == share


def test_a_part_of_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=12 * GIB, total=16 * GIB))
    assert with_fitting_share({"model": "m"}, 0.5) == {"model": "m", "gpu_memory_utilization": "0.335"}
