import importlib
from pathlib import Path

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.script.djl_names.modules import MISSING_MODULES, present_modules
from lmi_core.script.import_checks import import_warnings, require_imports

SCRIPTS = Path(__file__).parents[2] / "model_scripts"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "model.py"


def complaints(script: Path) -> list[str]:
    with pytest.raises(ConfigurationError) as raised:
        require_imports(script)
    return raised.value.message.splitlines()


def test_no_module_that_is_here_is_declared_as_missing() -> None:
    assert not set(present_modules()) & MISSING_MODULES.keys()


@pytest.mark.parametrize("name", present_modules())
def test_every_public_name_is_there(name: str) -> None:
    module = importlib.import_module(name)
    assert [each for each in getattr(module, "__all__", ()) if not hasattr(module, each)] == []


def test_imports_of_the_file_and_of_those_that_it_imports() -> None:
    deepspeed, formatter, neuron = complaints(SCRIPTS / "missing_import" / "model.py")
    assert deepspeed == (
        "model.py:2: `from djl_python.deepspeed import DeepSpeedService` cannot work: LMI itself dropped DeepSpeed "
        "after v0.27; instead of DeepSpeedService import it from djl_python.huggingface, which generates with the "
        "backend of option.rolling_batch"
    )
    assert formatter.startswith(
        "helper.py:1: `from djl_python.output_formatter import sse_response_formatter` cannot work:"
        " djl_python.output_formatter has no `sse_response_formatter`."
    )
    assert neuron.startswith(
        "helper.py:2: `import transformers_neuronx` cannot work: AWS Neuron devices are not supported"
    )


def test_imports_that_may_never_run_are_warnings() -> None:
    (warning,) = import_warnings(SCRIPTS / "missing_import" / "model.py")
    assert warning.startswith("model.py:14: `from djl_python.rolling_batch import SchedulerRollingBatch` cannot work:")
    assert warning.endswith("(only when it is reached)")
    template = SCRIPTS / "sagemaker_template" / "model.py"
    require_imports(template)
    assert [each.partition(":")[0] for each in import_warnings(template)] == ["model.py", "model.py"]


@pytest.mark.parametrize(
    "code",
    [
        "import djl_python",
        "import djl_python.chat_completions.chat_utils as utils",
        "from djl_python import huggingface, Input",
        "from djl_python.huggingface import *",
        "try:\n    import deepspeed\nexcept (OSError, ImportError):\n    pass",
        "try:\n    from djl_python.deepspeed import x\nexcept:\n    pass",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tensorrt_llm",
        "import json, os",
        "from . import helper",
        "def broken(:",
    ],
)
def test_what_works_or_is_expected_to_fail(script: Path, code: str) -> None:
    script.write_text(code)
    require_imports(script)
    assert import_warnings(script) == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import djl_python.lmi_vllm.vllm_async_service", "option.rolling_batch=vllm replaces it"),
        ("from djl_python import deepspeed", "LMI itself dropped DeepSpeed"),
        ("from djl_python import Inputs", "djl_python has no `Inputs`. Did you mean `Input`?"),
        ("from djl_python.nonsense import x", "there is no such module. djl_python has: async_utils"),
        ("import tensorrt_llm", "TensorRT-LLM is not part of this server"),
        ("with x:\n    import deepspeed", "DeepSpeed is not part of this server"),
        ("class A:\n    import deepspeed", "DeepSpeed is not part of this server"),
        ("try:\n    import deepspeed\nfinally:\n    pass", "DeepSpeed is not part of this server"),
        ("try:\n    import deepspeed\nexcept KeyError:\n    pass", "DeepSpeed is not part of this server"),
    ],
)
def test_what_cannot_work(script: Path, code: str, words: str) -> None:
    script.write_text(code)
    (line,) = complaints(script)
    assert words in line
    assert "pip install" not in line


def test_an_environment_of_its_own_may_have_an_engine(script: Path) -> None:
    script.write_text("import deepspeed\n")
    require_imports(script, own_environment=True)
    script.write_text("import deepspeed\nimport djl_python.deepspeed\n")
    with pytest.raises(ConfigurationError, match=r"model.py:2: `import djl_python.deepspeed` cannot work"):
        require_imports(script, own_environment=True)


def test_files_in_folders_beside_it(script: Path) -> None:
    (script.parent / "tools").mkdir()
    (script.parent / "tools" / "__init__.py").write_text("from .inner import work\n")
    (script.parent / "tools" / "inner.py").write_text("import deepspeed\n")
    script.write_text("from tools import work\n")
    (line,) = complaints(script)
    assert line.startswith("inner.py:1: `import deepspeed`")
