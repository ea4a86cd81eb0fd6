"""Versions of vLLM that this project is not tested with."""

import logging
from unittest.mock import AsyncMock

import pytest

from lmi_plugins.vllm_engine import engine
from lmi_plugins.vllm_engine.engine import VllmEngine


@pytest.mark.parametrize(
    ("installed", "warned"), [("0.32.0", False), ("0.32.7+cpu", False), ("0.33.0", True), ("0.3.1", True)]
)
async def test_another_version_warns(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, installed: str, warned: bool
) -> None:
    monkeypatch.setattr(engine, "VERSION", installed)
    started = VllmEngine({}, 3)
    monkeypatch.setattr(started._supervisor, "start", AsyncMock())
    with caplog.at_level(logging.WARNING):
        await started.start()
    warning = f"vLLM {installed} is installed, but this server was tested with 0.32"
    assert [record.getMessage() for record in caplog.records] == [warning] * warned
