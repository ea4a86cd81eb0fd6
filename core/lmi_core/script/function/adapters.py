"""The adapters of a model function, which loads and applies them itself."""

from collections.abc import Collection, Mapping
from typing import ClassVar

from lmi_core.model_adapters import ModelAdapters
from lmi_core.script.function.runtime import ModelFunction

PIN = "pin"  # a field of requests that register adapters


class FunctionAdapters(ModelAdapters):
    """The adapters registered with the functions of a script, with their sources."""

    takes_any_fields: ClassVar[bool] = True

    def __init__(self, function: ModelFunction) -> None:
        super().__init__()
        self._function = function

    @property
    def folders(self) -> Mapping[str, str]:
        """The source of each adapter; only the script interprets it."""
        return {name: self._function.adapter_source(name) for name in sorted(self._function.adapters)}

    @property
    def pinned(self) -> Collection[str]:
        """The adapters whose last request contained `pin`; only the script interprets it."""
        return [name for name in self._function.adapters if self._function.adapter_field(name, PIN) == "true"]

    async def _add(self, name: str, source: str, fields: Mapping[str, str], *, pin: bool) -> None:
        self._check_new(name)
        async with self._lock:
            self._check_new(name)
            await self._function.register_adapter(name, source, fields)

    async def _replace(self, name: str, source: str | None, fields: Mapping[str, str], *, pin: bool | None) -> None:
        self.folder(name)
        async with self._lock:
            self.folder(name)
            await self._function.update_adapter(name, source, fields)

    async def _remove(self, name: str) -> None:
        async with self._lock:
            self.folder(name)
            await self._function.unregister_adapter(name)
