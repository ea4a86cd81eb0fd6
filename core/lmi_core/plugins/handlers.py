"""The registry of API dialects, and the routes that several of them have."""

import re
from collections.abc import Iterator

from lmi_core.errors import PluginError
from lmi_core.handler import Handler
from lmi_core.plugins.registry import Lazy, Registry, origin

Entry = type[Handler] | Lazy

PATH = re.compile(r"/(?:[^{}]|\{[A-Za-z_]\w*(?::.+)?\})*", re.ASCII)
PARAMETER = re.compile(r"\{[^{}]*\}")  # in a path; its name does not matter to which paths match


class HandlerRegistry(Registry[Handler]):
    """The API dialects; of those with the same route, the first of `entries` answers, and plugins precede built-ins."""

    def __init__(self) -> None:
        super().__init__("handler", Handler)

    def check(self, plugin: type[Handler]) -> None:
        """Raise PluginError for an invalid class, or one with invalid routes."""
        super().check(plugin)
        for route in plugin.routes:
            if not PATH.fullmatch(route.path):
                raise PluginError(
                    f"the handler {origin(plugin)} has a route with an invalid path: it must start with `/`, and have "
                    f"braces only around names, as in `/path/{{model}}`. Given: {route.path!r}"
                )

    def replacements(self) -> Iterator[str]:
        """Yield a sentence for each pair of handlers of which one answers routes of the other."""
        owners: dict[str, Entry] = {}
        replaced: dict[tuple[Entry, Entry], list[str]] = {}
        for entry in self.entries():
            for route, is_shared in _routes(entry):
                owner = owners.get(form := PARAMETER.sub("{}", route), entry)
                if owner is not entry:
                    replaced.setdefault((owner, entry), []).append(route)
                elif not is_shared:
                    owners[form] = entry
        for (owner, entry), routes in replaced.items():
            yield f"{_describe(owner)} replaces {_describe(entry)} for {', '.join(routes)}"


def _routes(entry: Entry) -> list[tuple[str, bool]]:
    """Return each route as `METHOD /path`, and whether it leaves some requests to handlers with the same route."""
    if isinstance(entry, Lazy):
        return [(route, False) for route in entry.routes]
    return [(f"{route.method} {route.path}", route.media_type is not None) for route in entry.routes]


def _describe(entry: Entry) -> str:
    return f"the handler `{entry.name}` ({origin(entry)})"
