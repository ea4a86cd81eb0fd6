"""The registry of API dialects, whose classes are checked when they are registered."""

import inspect
from collections.abc import Iterator

from lmi_core.errors import PluginError
from lmi_core.handler import Handler
from lmi_core.payloads.payload import shown
from lmi_core.plugins.registry import Registry, origin
from lmi_core.route import Route


class HandlerRegistry(Registry[Handler]):
    """The API dialects that the server speaks."""

    def __init__(self) -> None:
        super().__init__("handler", Handler)

    def check(self, plugin: type[Handler]) -> None:
        if isinstance(plugin, type) and issubclass(plugin, Handler):
            faults = list(_faults(plugin))
            if faults:
                raise PluginError("\n".join(f"the handler {origin(plugin)}: {fault}" for fault in faults))
        super().check(plugin)


def _faults(plugin: type[Handler]) -> Iterator[str]:
    routes = getattr(plugin, "routes", ())
    if not isinstance(routes, (tuple, list)) or not all(isinstance(route, Route) for route in routes):
        yield f"`routes` must be a tuple of routes, each a Route. Given: {shown(routes)}"
        return
    for route in routes:
        if not route.path.startswith("/"):
            yield f"a route's path must begin with /. Given: {shown(route.path)}"
        if route.answer is not None and not inspect.iscoroutinefunction(inspect.unwrap(route.answer)):
            yield f"the `answer` of {route.method} {route.path} must be an `async def`. Given: {shown(route.answer)}"
    for name in ("parse", "error"):
        if inspect.iscoroutinefunction(getattr(plugin, name)):
            yield f"`{name}` must be a plain `def`: it must not wait for anything"
