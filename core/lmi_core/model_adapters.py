"""The adapters of a model that runs."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Coroutine, Mapping
from pathlib import Path
from typing import Any, ClassVar

from lmi_core.errors import AdapterExists, AdapterNotFound, LmiError

logger = logging.getLogger(__name__)


class ModelAdapters(ABC):
    """The adapters of a running model. Changes run one after another; a change that fails has no effect."""

    takes_any_fields: ClassVar[bool]  # whether a change may have unknown fields

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()

    @property
    @abstractmethod
    def folders(self) -> Mapping[str, Path | str]:
        """The source of each adapter that a request can select now."""

    @property
    @abstractmethod
    def pinned(self) -> Collection[str]:
        """The pinned adapters, which are never evicted."""

    def folder(self, name: str) -> Path | str:
        """Return an adapter's source. Raise AdapterNotFound for an unknown name."""
        folders = self.folders
        if name not in folders:
            raise AdapterNotFound.of(name, folders)
        return folders[name]

    async def add(self, name: str, source: str, fields: Mapping[str, str] | None = None, *, pin: bool = False) -> None:
        """Load the adapter in a folder or below an `s3://` URL, and pin it if asked.

        The model function's `register_adapter` gets the source unchanged, with the request's other `fields`.
        Raise AdapterExists, InvalidAdapter, or ConfigurationError for a wrong script.
        """
        await self._to_its_end(self._add(name, source, fields or {}, pin=pin))

    async def replace(
        self, name: str, source: str | None, fields: Mapping[str, str] | None = None, *, pin: bool | None = None
    ) -> None:
        """Load an adapter, replacing the one of that name, which running requests keep.

        Without a source, only `pin` changes; without both, the adapter's own source is read again. Raise the same
        errors as `add`, and AdapterNotFound.
        """
        await self._to_its_end(self._replace(name, source, fields or {}, pin=pin))

    async def remove(self, name: str) -> None:
        """Unload an adapter, which running requests keep. Raise AdapterNotFound for an unknown name."""
        await self._to_its_end(self._remove(name))

    async def restore(self, before: Mapping[str, Path | str], pinned: Collection[str] = ()) -> None:
        """Load the adapters again that the model had before it was unloaded; log failures."""
        for name in self.folders.keys() - before.keys():
            await self.remove(name)
        for name, source in before.items():
            now, pin = self.folders.get(name), name in pinned
            try:
                if now is None:
                    await self.add(name, str(source), pin=pin)
                elif str(now) != str(source):
                    await self.replace(name, str(source), pin=pin)
                elif pin != (name in self.pinned):
                    await self.replace(name, None, pin=pin)
            except LmiError as error:
                logger.error("the adapter %s could not be loaded again from %s: %s", name, source, error.message)

    @abstractmethod
    async def _add(self, name: str, source: str, fields: Mapping[str, str], *, pin: bool) -> None: ...

    @abstractmethod
    async def _replace(self, name: str, source: str | None, fields: Mapping[str, str], *, pin: bool | None) -> None: ...

    @abstractmethod
    async def _remove(self, name: str) -> None: ...

    async def _to_its_end(self, change: Coroutine[Any, Any, None]) -> None:
        """Complete a change even if its client disconnects, so that engine and scripts agree."""
        task = asyncio.create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        await asyncio.shield(task)

    def _check_new(self, name: str) -> None:
        if name in self.folders:
            raise AdapterExists(f"the adapter `{name}` already exists: update or delete it")
