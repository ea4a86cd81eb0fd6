"""What is said of the code that a model brings, and that it is what runs."""

import json
from pathlib import Path

import pytest

from lmi_core.plugins.loading import load_plugins
from lmi_core.serving.model_plan import ModelPlan, read_plan
from lmi_core.serving.own_code import NONE, code_that_runs
from tests.conftest import SCRIPTED, ModelDirectory

RAN = "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n"
FORMATTER = (
    RAN
    + "from djl_python.output_formatter import output_formatter\n\n@output_formatter\ndef f(output):\n    return 'x'\n"
)
HANDLE = RAN + "def handle(inputs):\n    return None\n"
TRUSTED = "option.rolling_batch=torch\noption.trust_remote_code=true\n"


def plan_of(directory: Path) -> ModelPlan:
    return read_plan("model", directory, {}, load_plugins())


def code_of(directory: Path) -> str:
    return code_that_runs(plan_of(directory))


def test_none(model_dir: ModelDirectory) -> None:
    assert code_of(model_dir({"serving.properties": SCRIPTED, "other.py": RAN})) == NONE


@pytest.mark.parametrize("properties", [SCRIPTED, f"{SCRIPTED}option.entryPoint=own.py\n"])
def test_formatters(model_dir: ModelDirectory, properties: str) -> None:
    name = "own" if "own.py" in properties else "model"
    files = {"serving.properties": properties, f"{name}.py": FORMATTER, "unused.py": RAN}
    directory = model_dir({**files, "adapters/french/model.py": FORMATTER, "adapters/german/adapter_config.json": "{}"})
    assert code_of(directory) == (
        f"{name}.py, in the server's process; model.py of the adapters french, in the server's process"
    )
    assert sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*.ran")) == sorted(
        ["adapters/french/model.ran", f"{name}.ran"]
    )


def test_model_functions(model_dir: ModelDirectory) -> None:
    directory = model_dir({"model.py": HANDLE})
    assert code_of(directory) == "model.py, in separate processes"
    assert not (directory / "model.ran").exists()  # in this one


def test_remote_code(model_dir: ModelDirectory) -> None:
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own_model.Model"}}
    tokenizer = {"auto_map": {"AutoTokenizer": ["org/name--tokens.Slow", None]}}
    files = {"config.json": json.dumps(config), "tokenizer_config.json": json.dumps(tokenizer)}
    directory = model_dir({"serving.properties": TRUSTED, **files})
    assert code_of(directory) == (
        f"org/name--tokens.py, own.py, own_model.py of {directory}, where the model is loaded "
        "(option.trust_remote_code=true)"
    )
    (directory / "serving.properties").write_text("option.rolling_batch=torch\n")
    assert code_of(directory) == NONE


def test_remote_code_that_is_not_there(model_dir: ModelDirectory) -> None:
    here = model_dir({"serving.properties": TRUSTED, "config.json": "{}"})
    assert code_of(here) == "Python files that the model names (none) (option.trust_remote_code=true)"
    away = model_dir({"serving.properties": f"{TRUSTED}option.model_id=org/name\n"}, name="away")
    assert code_of(away) == "any Python files that the model's repository names (option.trust_remote_code=true)"


def test_pickles_and_packages(model_dir: ModelDirectory) -> None:
    properties = "option.rolling_batch=torch\noption.allow_pickle=true\n"
    directory = model_dir({"serving.properties": properties, "config.json": "{}", "requirements.txt": "torch\n"})
    assert code_of(directory) == ("pickled weights, which run only code that PyTorch knows (option.allow_pickle=true)")


@pytest.mark.vllm
def test_code_of_engine_arguments(model_dir: ModelDirectory) -> None:
    properties = "option.rolling_batch=vllm\noption.logits_processors=own.module:Class\noption.seed=1\n"
    plan = plan_of(model_dir({"serving.properties": properties, "config.json": "{}"}))
    assert plan.backend is not None
    if plan.backend.name == "vllm":  # on hosts that can run it
        assert code_that_runs(plan) == "option.logits_processors=own.module:Class, in the engine"
