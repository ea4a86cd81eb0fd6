"""The adapters of a model function, which loads and applies them itself."""

from collections.abc import Collection, Mapping
from typing import ClassVar

from lmi_core.model_adapters import ModelAdapters
from lmi_core.script.function.protocol import Request
from lmi_core.script.function.runtime import ModelFunction
from lmi_core.script.function.setup import NAME, SOURCE, adapter_change

PIN = "pin"  # a field of requests that register adapters
OPPOSITES = {
    "register_adapter": "unregister_adapter",
    "update_adapter": "update_adapter",
    "unregister_adapter": "register_adapter",
}


class FunctionAdapters(ModelAdapters):
    """The adapters registered with the functions of a script, with their sources."""

    takes_any_fields: ClassVar[bool] = True

    def __init__(self, function: ModelFunction) -> None:
        super().__init__()
        self._pool = function.pool
        self._known = function.adapters

    @property
    def folders(self) -> Mapping[str, str]:
        """The source of each adapter; only the script interprets it."""
        return {name: self._known[name].properties[SOURCE] for name in sorted(self._known)}

    @property
    def pinned(self) -> Collection[str]:
        """The adapters whose last request contained `pin`; only the script interprets it."""
        return [name for name, request in self._known.items() if request.properties.get(PIN) == "true"]

    async def _add(self, name: str, source: str, fields: Mapping[str, str], *, pin: bool) -> None:
        self._check_new(name)
        async with self._lock:
            self._check_new(name)
            await self._call("register_adapter", name, adapter_change(name, source, fields))

    async def _replace(self, name: str, source: str | None, fields: Mapping[str, str], *, pin: bool | None) -> None:
        self.folder(name)
        async with self._lock:
            folder, before = str(self.folder(name)), self._known[name].content
            kept = {key: value.decode() for key, value in before if key not in (None, NAME, SOURCE)}
            change = adapter_change(name, source or folder, kept | dict(fields))
            await self._call("update_adapter", name, change)

    async def _remove(self, name: str) -> None:
        async with self._lock:
            self.folder(name)
            await self._call("unregister_adapter", name, Request({NAME: name}, []))

    async def _call(self, function: str, name: str, change: Request) -> None:
        """Call a function of the script in every current process. If one fails, undo the others, and raise LmiError."""
        undo = OPPOSITES[function], self._known.get(name, Request({NAME: name}, []))
        await self._pool.broadcast(function, change, undo)
        self._known.pop(name, None)
        if SOURCE in change.properties:
            self._known[name] = change
