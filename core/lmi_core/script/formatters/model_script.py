"""Loading of `model.py` and discovery of its formatters."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from lmi_core.decorators import INPUT_MARK, OUTPUT_MARK, OutputMark
from lmi_core.errors import ConfigurationError
from lmi_core.formatter import OutputFormatter
from lmi_core.script.environment import missing_package_hint
from lmi_core.script.formatters.input_formatters import InputFunction, input_function
from lmi_core.script.formatters.output_formatters import FormatterFunction, formatter_function
from lmi_core.script.import_checks import require_imports
from lmi_core.script.imports import ScriptImporter
from lmi_core.script.time_limits import TimeLimitExceeded, load_within
from lmi_core.script.tracebacks import own_traceback

SCRIPT = "model.py"
LOADING_SECONDS = 1800  # the default of option.model_loading_timeout
OLDEST_NAME = "custom_output_formatter"  # found without a decorator

CustomOutput = FormatterFunction | type[OutputFormatter]


@dataclass
class ModelScript:
    """A loaded script; `importer.unload` drops its modules, which running calls keep."""

    path: Path
    importer: ScriptImporter
    outputs: dict[str, CustomOutput] = field(default_factory=dict)
    inputs: dict[str, InputFunction] = field(default_factory=dict)


def load_script(path: Path, site_packages: Path | None = None, seconds: float = LOADING_SECONDS) -> ModelScript:
    """Load a script in this process. Raise ConfigurationError with the traceback of the script's own lines.

    `seconds` limits its time, because endless code would block the server.
    """
    require_imports(path, own_environment=site_packages is not None)
    directory = path.parent.resolve()
    importer = ScriptImporter(directory, *([site_packages] if site_packages else []))
    try:
        module = load_within(seconds, lambda: importer.load(path.stem))
    except TimeLimitExceeded as error:
        importer.unload()  # if a thread could not be ended
        # Without the exception that ended it
        where = own_traceback(error, directory).rpartition(type(error).__module__)[0]
        raise ConfigurationError(
            f"{path} cannot be loaded: its code did not end within option.model_loading_timeout={seconds:g} seconds\n"
            f"{where}".rstrip()
        ) from error
    except BaseException as error:  # a script may raise anything
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # for the command to handle
        hint = missing_package_hint(error, directory)
        raise ConfigurationError(f"{path} cannot be loaded\n{own_traceback(error, directory)}{hint}") from error
    script = ModelScript(path, importer)
    try:
        for name, found in _find_formatters(module):
            _add(script, name, found)
    except ConfigurationError as error:
        importer.unload()
        raise ConfigurationError(f"{path}: {error.message}") from None
    return script


def _find_formatters(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the unique formatters by name: all with a decorator, or the one with the legacy name."""
    members = {name: found for name, found in sorted(vars(module).items()) if _mark(found, OUTPUT_MARK)}
    if not members and callable(oldest := getattr(module, OLDEST_NAME, None)):
        members = {OLDEST_NAME: oldest}
    members |= {name: found for name, found in sorted(vars(module).items()) if _mark(found, INPUT_MARK)}
    yield from {id(found): (name, found) for name, found in members.items()}.values()


def _mark(found: object, mark: str) -> Any:
    """Return the mark of a function, or of a class itself, ignoring its bases' marks."""
    return vars(found).get(mark) if isinstance(found, type) else getattr(found, mark, None)


def _add(script: ModelScript, name: str, found: Callable[..., Any]) -> None:
    directory = script.path.parent.resolve()
    if _mark(found, INPUT_MARK):
        script.inputs[name] = input_function(found, directory)
        return
    mark: OutputMark | None = _mark(found, OUTPUT_MARK)
    known_as = mark.name if mark is not None else name
    if known_as in script.outputs:
        raise ConfigurationError(f"two output formatters are named {known_as}")
    script.outputs[known_as] = custom_output(found, directory)


def custom_output(found: Callable[..., Any], directory: Path) -> CustomOutput:
    """Return a function or class as an output formatter. Raise ConfigurationError for anything else."""
    mark: OutputMark | None = _mark(found, OUTPUT_MARK)
    if not isinstance(found, type):
        return formatter_function(found, directory)
    if not issubclass(found, OutputFormatter):
        raise ConfigurationError(f"the output formatter {found.__name__} is a class, so it must extend OutputFormatter")
    if found.__abstractmethods__:
        raise ConfigurationError(
            f"the output formatter {found.__name__} lacks {', '.join(sorted(found.__abstractmethods__))}"
        )
    if mark is not None and mark.content_type is not None:
        found.content_type = mark.content_type
    if not hasattr(found, "content_type"):
        raise ConfigurationError(f"the output formatter {found.__name__} must have a content_type")
    return found
