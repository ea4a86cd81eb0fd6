"""The code in a model's files, and where it runs."""

from collections.abc import Iterator
from pathlib import Path

from lmi_core.configuration.model_source import weights_folder
from lmi_core.errors.fault import Fault
from lmi_core.script.function.setup import FunctionSetup
from lmi_core.serving.model_plan import ModelPlan
from lmi_core.texts.json_files import read_json

NONE = "none of its own"
CONFIGURATIONS = ("config.json", "tokenizer_config.json")
MAPPING = "auto_map"  # maps transformers' classes to the Python file that defines each


def code_that_runs(plan: ModelPlan) -> str:
    """Describe the code in a model's files that runs, in one line."""
    return "; ".join(_code(plan)) or NONE


def _code(plan: ModelPlan) -> Iterator[str]:
    setup = plan.setup
    if isinstance(setup, FunctionSetup):
        yield f"{Path(setup.load.script).name}, in separate processes"
    if plan.code.script is not None:
        yield f"{plan.code.script.path.name}, in the server's process"
    if scripts := sorted(plan.code.adapters):
        yield f"model.py of the adapters {', '.join(scripts)}, in the server's process"
    if plan.options.enable_venv and (plan.directory / "requirements.txt").is_file():
        yield "the packages of requirements.txt (option.enable_venv=true)"
    if plan.backend is not None:
        yield from _code_of_the_engine(plan)


def _code_of_the_engine(plan: ModelPlan) -> Iterator[str]:
    assert plan.backend is not None
    setup = plan.setup
    if setup.properties.trust_remote_code:
        yield f"{_remote_code(plan)} (option.trust_remote_code=true)"
    if setup.properties.allow_pickle:
        yield "pickled weights, which run only code that PyTorch knows (option.allow_pickle=true)"
    for name in sorted(plan.backend.code_options & setup.engine_arguments.keys()):
        yield f"option.{name}={setup.engine_arguments[name]}, in the engine"


def _remote_code(plan: ModelPlan) -> str:
    folder = weights_folder(plan.directory, plan.setup.properties)
    if folder is None:
        return "any Python files that the model's repository names"
    files = sorted({file for name in CONFIGURATIONS for file in _code_references(folder / name)})
    if not files:
        return "Python files that the model names (none)"
    return f"{', '.join(files)} of {folder}, where the model is loaded"


def _code_references(configuration: Path) -> Iterator[str]:
    """Yield the Python files, or their repositories, in a configuration."""
    try:
        mapping = read_json(configuration).get(MAPPING)
    except Fault:
        return
    for value in mapping.values() if isinstance(mapping, dict) else ():
        for reference in value if isinstance(value, list) else [value]:
            if isinstance(reference, str) and (module := reference.rpartition(".")[0]):
                yield f"{module}.py"
