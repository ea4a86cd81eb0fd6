"""The registry of plugin classes by name."""

import sys
from collections.abc import Iterator
from typing import ClassVar, Generic, Protocol, TypeVar, get_origin

from lmi_core.errors import PluginError
from lmi_core.errors.did_you_mean import added_to, did_you_mean


class Named(Protocol):
    name: ClassVar[str]


T = TypeVar("T", bound=Named)

FILE_MODULE_PREFIX = "lmi_plugin_"  # prefix of modules imported from files, which are named by their file


def origin(plugin: object) -> str:
    """Return where a plugin class or function is defined: `module.Class`, or `file.py:Class`."""
    module, name = getattr(plugin, "__module__", None), getattr(plugin, "__qualname__", None)
    if module is None or name is None:
        return repr(plugin)
    if module.startswith(FILE_MODULE_PREFIX):
        return f"{getattr(sys.modules.get(module), '__file__', module)}:{name}"
    return f"{module}.{name}"


def _missing(plugin: type, base: type) -> list[str]:
    """Return the attributes that the base requires and the plugin does not define."""
    origins: dict[str, object] = {name: get_origin(kind) for name, kind in base.__annotations__.items()}
    declared = [name for name, kind in origins.items() if kind is ClassVar]
    methods = getattr(plugin, "__abstractmethods__", ())
    return [*(name for name in declared if not hasattr(plugin, name)), *sorted(methods)]


class Registry(Generic[T]):
    """A registry of one kind of plugin classes, by unique name."""

    def __init__(self, kind: str, base: type) -> None:
        self.kind = kind
        self.base = base
        self._plugins: dict[str, type[T]] = {}

    def register(self, plugin: type[T]) -> None:
        if not (isinstance(plugin, type) and issubclass(plugin, self.base) and hasattr(plugin, "name")):
            raise PluginError(
                f"the {self.kind} {origin(plugin)} must be a subclass of {self.base.__name__} with a `name`"
            )
        if missing := _missing(plugin, self.base):
            raise PluginError(f"the {self.kind} {origin(plugin)} lacks {', '.join(missing)}")
        for name in (plugin.name, *getattr(plugin, "aliases", ())):
            taken = self._plugins.get(name)
            if taken is not None:
                raise PluginError(f"two plugins register the {self.kind} `{name}`: {origin(taken)}, {origin(plugin)}")
            self._plugins[name] = plugin

    def get(self, name: str) -> type[T]:
        plugin = self._plugins.get(name)
        if plugin is None:
            known = ", ".join(sorted(self._plugins))
            suggestion = added_to(name) or did_you_mean(name, self._plugins)
            raise PluginError(
                f"there is no {self.kind} `{name}`.{suggestion} Known: {known}. Others come from "
                "packages of plugins that are installed, and from the files of --plugins-dir"
            )
        return plugin

    def without(self, *names: str) -> "Registry[T]":
        """Return a registry of all plugins but those of these names. Raise PluginError for an unknown one."""
        left_out, rest = [self.get(name) for name in names], Registry[T](self.kind, self.base)
        rest._plugins = {name: plugin for name, plugin in self._plugins.items() if plugin not in left_out}
        return rest

    def __contains__(self, name: object) -> bool:
        return name in self._plugins

    def __iter__(self) -> Iterator[type[T]]:
        """Yield each class once, even if it has several names."""
        return iter(dict.fromkeys(self._plugins.values()))
