"""The quantization methods that `option.quantize` may name, with vLLM's own list."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

from lmi_core.errors import ConfigurationError
from lmi_plugins.vllm_engine.arguments import quantization
from lmi_plugins.vllm_engine.arguments.quantization import PLUGINS, check_method, vllm_methods
from tests.conftest import ModelDirectory
from tests.handlers.cli.test_cli import lmi

READ = "from lmi_plugins.vllm_engine.arguments.quantization import check_method; check_method('{method}', '{method}')"
NOTHING_IMPORTED = "import sys; assert not {'vllm', 'torch'} & {*sys.modules}"


def test_methods_are_vllms() -> None:
    assert {*vllm_methods()} == {*QUANTIZATION_METHODS}


def test_methods_are_known_without_importing_vllm() -> None:
    subprocess.run([sys.executable, "-c", f"{READ.format(method='FP8')}; {NOTHING_IMPORTED}"], check=True)


@pytest.mark.parametrize("name", ["vllm", "lmi-dist"])
@pytest.mark.parametrize(("given", "hint"), [("foo", ""), ("gptk", " Did you mean `gptq`?")])
def test_check_refuses_other_methods(model_dir: ModelDirectory, name: str, given: str, hint: str) -> None:
    text = f"option.model_id=org/model\noption.rolling_batch={name}\noption.quantize={given}\n"
    result = lmi("check", model_dir({"serving.properties": text}))
    assert result.returncode == 2
    assert result.stderr.startswith("lmi: option.quantize must be a method of vLLM: awq, ")
    assert result.stderr.endswith(f".{hint} Given: {given}\n")


def test_other_packages_may_add_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="must be a method of vLLM"):
        check_method("theirs", "theirs")
    theirs = EntryPoint("theirs", "theirs.methods:register", PLUGINS[0])
    monkeypatch.setattr(quantization, "entry_points", lambda group: [theirs] if group == theirs.group else [])
    check_method("theirs", "theirs")
