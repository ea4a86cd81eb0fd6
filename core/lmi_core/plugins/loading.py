"""Discovery and registration of plugins, without a global plugin manager."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from lmi_core import hookspecs
from lmi_core.backend import Backend
from lmi_core.errors import LmiError, PluginError
from lmi_core.formatter import OutputFormatter
from lmi_core.plugins.formatters import FormatterRegistry
from lmi_core.plugins.handlers import HandlerRegistry
from lmi_core.plugins.registry import FILE_MODULE_PREFIX, Registry, origin
from lmi_core.script.formatters.model_script import CustomOutput
from lmi_core.script.formatters.output_formatters import FormatterFunction, formatter_function
from lmi_core.script.tracebacks import place_in

ENTRY_POINT_GROUP = "lmi"
HOOKS = tuple(name for name in vars(hookspecs) if name.startswith("lmi_register_"))

BUILTIN_PLUGINS = (
    "lmi_plugins.backends.registration",
    "lmi_plugins.formatters.registration",
    "lmi_handlers.chat.lmi_formatters",
    "lmi_handlers.dialects",
)
BUILTIN_FORMATTERS = "lmi_plugins.formatters."  # the beginning of their modules' names


@dataclass(frozen=True)
class Plugins:
    """The registries of everything that plugins add."""

    backends: Registry[Backend[Any]] = field(default_factory=lambda: Registry("backend", Backend))
    formatters: FormatterRegistry = field(default_factory=FormatterRegistry)
    handlers: HandlerRegistry = field(default_factory=HandlerRegistry)
    formatter_functions: dict[str, FormatterFunction] = field(default_factory=dict)
    others: tuple[str, ...] = ()  # plugins that are not built in, each with its origin

    def register_formatter(self, formatter: type[OutputFormatter] | Callable[..., Any]) -> None:
        """Register a class, or a function as in `model.py`. Raise PluginError for a taken name or a wrong signature."""
        if isinstance(formatter, type) or not callable(formatter):
            self.formatters.register(formatter)
            return
        function = formatter_function(formatter, Path(inspect.getfile(formatter)).parent)
        if function.name in self.formatter_functions or function.name in self.formatters:
            raise PluginError(
                f"the output formatter `{function.name}` of {origin(formatter)} has a name that is already registered"
            )
        self.formatter_functions[function.name] = function

    def custom_formatters(self, name: str | None) -> dict[str, CustomOutput]:
        """Return the third-party formatters for every route: all functions, and the named class."""
        found: dict[str, CustomOutput] = {**self.formatter_functions}
        if name is not None and name in self.formatters:
            named = self.formatters.get(name)
            if not named.__module__.startswith(BUILTIN_FORMATTERS):
                found[name] = named
        return found


def load_plugins(plugins_directory: Path | None = None, modules: Iterable[object] = ()) -> Plugins:
    """Load the built-ins, the entry-point group `lmi`, `plugins_directory`, and `modules` (objects with hooks).

    Raise PluginError for a plugin that cannot be imported, implements an unknown hook, or registers a taken name.
    """
    manager = pluggy.PluginManager(ENTRY_POINT_GROUP)
    manager.add_hookspecs(hookspecs)
    for name in BUILTIN_PLUGINS:
        _register(manager, importlib.import_module(name), name)
    others = []
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        _register(manager, _import(entry.load, f"entry point `{entry.name}` ({entry.value})", entry.module), entry.name)
        others.append(f"{entry.name} ({entry.value})")
    for path in _plugin_files(plugins_directory) if plugins_directory else ():
        _register(manager, _import(partial(import_file, path), str(path), _module_name(path)), str(path))
        others.append(str(path))
    for module in modules:
        _register(manager, module, getattr(module, "__name__", repr(module)))
    return _collect(manager, tuple(others))


def _plugin_files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise PluginError(f"{directory} is not a folder")
    return sorted(directory.glob("*.py"))


def import_file(path: Path) -> ModuleType:
    """Import a Python file under a unique module name, so that files with the same name do not collide."""
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _module_name(path: Path) -> str:
    return f"{FILE_MODULE_PREFIX}{path.stem}_{abs(hash(path.resolve())):x}"


def _import(load: Callable[[], object], what: str, module: str) -> object:
    try:
        return load()
    except (Exception, SystemExit) as error:  # a plugin's own code may raise anything
        raise PluginError(f"the plugin {what} cannot be imported: {_describe_error(error, module)}") from error


def _register(manager: pluggy.PluginManager, plugin: object, name: str) -> None:
    try:
        manager.register(plugin, name)
    except (pluggy.PluginValidationError, ValueError) as error:
        raise PluginError(f"the plugin {name} cannot be registered: {error}") from error
    for hook in HOOKS:
        if hasattr(plugin, hook) and manager.parse_hookimpl_opts(plugin, hook) is None:
            raise PluginError(f"the plugin {name} has {hook} without @hookimpl (lmi_core.hookspecs)")


def _collect(manager: pluggy.PluginManager, others: tuple[str, ...]) -> Plugins:
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise PluginError(f"{error}. Known: {', '.join(HOOKS)}") from error
    plugins = Plugins(others=others)
    _call(manager.hook.lmi_register_backends, plugins.backends.register)
    _call(manager.hook.lmi_register_formatters, plugins.register_formatter)
    _call(manager.hook.lmi_register_handlers, plugins.handlers.register)
    return plugins


def _call(hook: pluggy.HookCaller, register: Callable[[Any], None]) -> None:
    try:
        hook(register=register)
    except LmiError:
        raise
    except (Exception, SystemExit) as error:  # a plugin's own code may raise anything
        modules = [each.function.__module__ for each in hook.get_hookimpls()]
        raise PluginError(f"a plugin's {hook.name} raised {_describe_error(error, *modules)}") from error


def _describe_error(error: BaseException, *modules: str) -> str:
    return f"{type(error).__name__}: {error}{place_in(error, *modules)}"
