"""The registry of plugin classes by name."""

import importlib
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar, get_origin

from lmi_core.errors import PluginError
from lmi_core.errors.did_you_mean import did_you_mean, stray_text_hint


class Named(Protocol):
    name: ClassVar[str]


T = TypeVar("T", bound=Named)

# pytest parses the modules of packages with a pytest plugin, such as this one, for which CPython 3.11 fails in two
# threads at once ("AST constructor recursion depth mismatch").
_importing = threading.Lock()


@dataclass(frozen=True)
class Lazy:
    """A plugin class that is imported on first use, and the attributes needed before."""

    target: str  # module:Class
    name: str
    aliases: tuple[str, ...] = ()
    auto_priority: int | None = None  # for a backend
    routes: tuple[str, ...] = ()  # for a handler, each `METHOD /path`; clients may use all of them

    def load(self) -> type:
        module, _, name = self.target.partition(":")
        with _importing:
            found: type = getattr(importlib.import_module(module), name)
        return found


FILE_MODULE_PREFIX = "lmi_plugin_"  # prefix of modules imported from files, followed by the file's name


def origin(plugin: object) -> str:
    """Return where a plugin class or function is defined: `module.Class`, or `file.py:Class`."""
    if isinstance(plugin, Lazy):
        return plugin.target.replace(":", ".")
    module, name = getattr(plugin, "__module__", None), getattr(plugin, "__qualname__", None)
    if module is None or name is None:
        return repr(plugin)
    if module.startswith(FILE_MODULE_PREFIX):
        return f"{getattr(sys.modules.get(module), '__file__', module)}:{name}"
    return f"{module}.{name}"


class Registry(Generic[T]):
    """A registry of one kind of plugin classes, by unique name."""

    def __init__(self, kind: str, base: type) -> None:
        self.kind = kind
        self.base = base
        self._plugins: dict[str, type[T] | Lazy] = {}

    def register(self, plugin: type[T] | Lazy) -> None:
        """Register a class or a lazily imported one. Raise PluginError for a taken name or an invalid class."""
        if not isinstance(plugin, Lazy):
            self.check(plugin)
        for name in (plugin.name, *getattr(plugin, "aliases", ())):
            taken = self._plugins.get(name)
            if taken is not None:
                raise PluginError(f"two plugins register the {self.kind} `{name}`: {origin(taken)}, {origin(plugin)}")
            self._plugins[name] = plugin

    def check(self, plugin: type[T]) -> None:
        """Raise PluginError for an invalid class."""
        if not (isinstance(plugin, type) and issubclass(plugin, self.base) and hasattr(plugin, "name")):
            raise PluginError(
                f"the {self.kind} {origin(plugin)} must be a subclass of {self.base.__name__} with a `name`"
            )
        origins: dict[str, object] = {name: get_origin(kind) for name, kind in self.base.__annotations__.items()}
        declared = [name for name, kind in origins.items() if kind is ClassVar]
        methods = getattr(plugin, "__abstractmethods__", ())
        if missing := [*(name for name in declared if not hasattr(plugin, name)), *sorted(methods)]:
            raise PluginError(f"the {self.kind} {origin(plugin)} lacks {', '.join(missing)}")

    def get(self, name: str) -> type[T]:
        """Return the class of that name, importing it if necessary. Raise PluginError for an unknown name."""
        return self._load(self._entry(name))

    def _entry(self, name: str) -> type[T] | Lazy:
        self.require(name)
        return self._plugins[name]

    def require(self, name: str, others: Iterable[str] = ()) -> None:
        """Raise PluginError unless a plugin registers the name; `others` are further names that it could mean."""
        if name not in self._plugins:
            known = sorted({*self._plugins, *others})
            suggestion = stray_text_hint(name) or did_you_mean(name, known)
            raise PluginError(
                f"there is no {self.kind} `{name}`.{suggestion} Known: {', '.join(known)}. Others come from "
                "installed packages of plugins, and from the files of --plugins-dir (in Python, plugins_directory)"
            )

    def without(self, *names: str) -> "Registry[T]":
        """Return a registry without the plugins of these names. Raise PluginError for an unknown name."""
        left_out, rest = [self._entry(name) for name in names], Registry[T](self.kind, self.base)
        rest._plugins = {name: plugin for name, plugin in self._plugins.items() if plugin not in left_out}
        return rest

    def __contains__(self, name: object) -> bool:
        return name in self._plugins

    def __iter__(self) -> Iterator[type[T]]:
        """Yield each class once, even if it has several names, importing it if necessary."""
        return map(self._load, self.entries())

    def entries(self) -> list[type[T] | Lazy]:
        """Return each entry once, imported or not."""
        return list(dict.fromkeys(self._plugins.values()))

    def _load(self, plugin: type[T] | Lazy) -> type[T]:
        if not isinstance(plugin, Lazy):
            return plugin
        found: type[T] = plugin.load()
        self._plugins |= {name: found for name, each in self._plugins.items() if each is plugin}
        return found
