"""Detection of a model function and its form in a file, without running the file."""

import ast
from pathlib import Path

from lmi_core.configuration.configuration import DEFAULT, Configuration
from lmi_core.configuration.properties import RequestProperties
from lmi_core.errors import ConfigurationError
from lmi_core.script.formatters.model_script import SCRIPT
from lmi_core.script.import_checks import require_imports
from lmi_core.script.tracebacks import own_traceback

HANDLE = "handle"
DECORATOR = "prediction_handler"
ROLLING_BATCH = "option.rolling_batch"
LMI_MODULES = ("djl_python.huggingface", "djl_python.tensorrt_llm")  # the others run a `handle` in model.py, if any


def find_model_function(directory: Path, options: RequestProperties) -> Path | None:
    """Return the Python file whose function serves the model; None if a backend does.

    The file is not run, because that might load a model. Raise ConfigurationError if a named file or function is
    missing.
    """
    path = directory / (options.script or SCRIPT)
    if options.entry_point in LMI_MODULES:
        return None
    if not path.is_file():
        if options.script is not None:
            raise ConfigurationError(f"option.entryPoint={options.script}: {directory} contains no such file")
        return None
    try:
        names = [name for statement in _parse(path).body for name in _names(statement)]
    except SyntaxError as error:
        raise ConfigurationError(f"{path} cannot be loaded\n{own_traceback(error, path.parent)}") from None
    if options.handler in names or (options.handler == HANDLE and has_prediction_handler(path)):
        require_imports(path, own_environment=options.enable_venv)
        return path.resolve()
    if options.handler != HANDLE:
        raise ConfigurationError(f"option.handler={options.handler}: {path} has no such function")
    return None


def rolls(script: Path, configuration: Configuration, options: RequestProperties) -> bool:
    """Return whether the function is of the rolling-batch form: `option.rolling_batch` is given and not `disable`.

    A prediction handler never is, because it returns whole answers.
    """
    given = any(each.key == ROLLING_BATCH and each.source != DEFAULT for each in configuration.effective())
    asked = given and options.rolling_batch != "disable" and not options.async_mode
    return asked and not has_prediction_handler(script)


def describe_call(script: Path, configuration: Configuration, options: RequestProperties) -> str:
    """Return a description, for `lmi check`, of how the function is called."""
    rolling = f", in a rolling batch, unless {options.handler} is asynchronous: {ROLLING_BATCH}={options.rolling_batch}"
    return f"{script.name} answers requests itself{rolling if rolls(script, configuration, options) else ''}"


def _parse(script: Path) -> ast.Module:
    return ast.parse(script.read_bytes(), str(script))


def _names(statement: ast.stmt) -> list[str]:
    """Return the names that a top-level statement defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return [statement.name]
    if isinstance(statement, ast.ImportFrom):
        return [each.asname or each.name for each in statement.names]
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    if isinstance(statement, ast.If | ast.Try | ast.With):
        blocks = [*statement.body, *getattr(statement, "orelse", [])]
        return [name for each in blocks for name in _names(each)]
    return []


def has_prediction_handler(script: Path) -> bool:
    """Return whether a top-level function is decorated with `@prediction_handler`.

    Raise SyntaxError if the file cannot be parsed.
    """
    functions = (each for each in _parse(script).body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    marks = [mark for function in functions for mark in function.decorator_list]
    return any(DECORATOR in (getattr(mark, "attr", None), getattr(mark, "id", None)) for mark in marks)
