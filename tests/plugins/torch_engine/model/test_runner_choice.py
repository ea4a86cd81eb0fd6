"""The choice of the library that computes a model on the CPU, with the default option."""

import importlib.util
import subprocess
import sys

import pytest
from transformers import LlamaForCausalLM

from lmi_plugins.torch_engine.messages.openvino_limits import reason_for_torch
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.model import runner_choice
from lmi_plugins.torch_engine.model.graph.openvino_runner import OpenVinoRunner
from lmi_plugins.torch_engine.model.paged_runner import PagedRunner
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import CONTEXT


def test_large_models_are_computed_by_openvino(
    reference: ReferenceModel, model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen() -> type[object]:
        model = LlamaForCausalLM.from_pretrained(model_directory("llama"))
        return type(runner_choice.choose_runner(model, CONTEXT, EngineOptions("")))

    assert chosen() is PagedRunner
    monkeypatch.setattr(runner_choice, "FEW_PARAMETERS", 1000)
    assert chosen() is OpenVinoRunner


@pytest.mark.parametrize(
    ("options", "on_cpu", "dtype", "config", "reason"),
    [
        ({}, True, "float32", {}, None),
        ({"cpu_runner": "openvino"}, True, None, {}, None),
        ({"cpu_runner": "torch"}, True, "float32", {}, "option.cpu_runner is torch"),
        ({}, False, "float32", {}, "the model does not run on the CPU"),
        ({"adapters": {"a": "b"}}, True, "float32", {}, "adapters loaded at the start"),
        ({}, True, "float16", {}, None),
        ({}, True, "float64", {}, "the model has float64"),
        ({}, True, "float32", {"quantization_config": {"bits": 4}}, "quantized already"),
        ({}, True, "float32", {"attn_logit_softcapping": 50.0}, "soft cap"),
    ],
)
def test_reasons(
    options: dict[str, object], on_cpu: bool, dtype: str | None, config: dict[str, object], reason: str | None
) -> None:
    found = reason_for_torch(EngineOptions("", **options), on_cpu, dtype, config)  # type: ignore[arg-type]
    assert (found is None) if reason is None else (found is not None and reason in found)


def test_openvino_need_not_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    reason = reason_for_torch(EngineOptions(""), True, "float32", {})
    assert reason == "OpenVINO is not installed (`pip install 'lmi-handlers[cpu]'`)"


def test_openvino_is_imported_only_where_it_computes(model_directory: ModelDirectory) -> None:
    program = f"""
import sys
from tests.plugins.torch_engine.tiny_models import make_engine
make_engine({str(model_directory("llama"))!r})
sys.exit("openvino" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", program]).returncode == 0
