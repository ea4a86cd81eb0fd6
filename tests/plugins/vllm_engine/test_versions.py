"""Versions of vLLM: the installed one, and those that are warned of."""

import importlib
import logging

import pytest

from lmi_plugins.vllm_engine import versions
from lmi_plugins.vllm_engine.versions import installed_version, warn_if_untested


@pytest.mark.parametrize(
    ("installed", "warning"),
    [
        ("0.32.0", None),
        ("0.32.7", None),
        ("0.33.0", "vLLM 0.33.0 is installed, but this server was tested with 0.32"),
        ("0.3.1", "vLLM 0.3.1 is installed"),
        (None, "vLLM of an unknown version is installed"),
    ],
)
def test_another_version_warns(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, installed: str | None, warning: str | None
) -> None:
    monkeypatch.setattr(versions, "installed_version", lambda: installed)
    with caplog.at_level(logging.WARNING):
        warn_if_untested()
    assert [record.getMessage()[: len(warning or "")] for record in caplog.records] == ([warning] if warning else [])


def test_the_installed_version_is_known() -> None:
    assert installed_version() == importlib.import_module("vllm").__version__.partition("+")[0]
