"""The adapters of a model that runs: their weights in the engine, and the formatters in their own scripts."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from lmi_core.backend import Backend
from lmi_core.errors import AdapterExists, AdapterNotFound, ConfigurationError, InvalidAdapter
from lmi_core.payloads.payload import shown
from lmi_core.plugins.registry import did_you_mean
from lmi_core.remote.fetching import fetch
from lmi_core.remote.location import RemoteModel, is_s3
from lmi_core.script.formatters.model_code import ADAPTER_WEIGHTS, ModelCode
from lmi_core.script.formatters.model_script import SCRIPT
from lmi_core.script.function.backend import HandlerBackend

logger = logging.getLogger(__name__)


class ModelAdapters:
    """Changes come one after the other. One that fails leaves everything as it was."""

    def __init__(self, backend: Backend[Any], code: ModelCode, directory: Path, own: Path) -> None:
        self._backend = backend
        self._code = code
        self._directory = directory
        self._own = own  # the folder of those that were there from the start
        self._loaded_from: dict[str, Path] = {}  # those that were not there from the start, of a backend with weights
        self._lock = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()

    @property
    def folders(self) -> dict[str, Path | str]:
        """That of each adapter that a request can name now; of a `handle` function's, what it was told instead."""
        if isinstance(self._backend, HandlerBackend):
            return {name: self._backend.adapter_source(name) for name in sorted(self._backend.adapters)}
        names = set(self._backend.adapters) | (self._code.adapters.keys() - self._code.adapters_with_weights)
        return {name: self._loaded_from.get(name, self._own / name) for name in sorted(names)}

    def folder(self, name: str) -> Path | str:
        """Raises AdapterNotFound."""
        folders = self.folders
        if name not in folders:
            known = ", ".join(folders) or "this model has none"
            raise AdapterNotFound(f"there is no adapter `{name}`.{did_you_mean(name, folders)} Known: {known}")
        return folders[name]

    async def add(self, name: str, source: str, fields: Mapping[str, str] | None = None) -> None:
        """Load the adapter in a folder or below an `s3://` URL.

        Raises AdapterExists, InvalidAdapter, or ConfigurationError for a wrong script.

        A `handle` function's `register_adapter` gets it as it is, with the request's further `fields`.
        """
        await self._to_its_end(self._add(name, source, fields or {}))

    async def replace(self, name: str, source: str | None, fields: Mapping[str, str] | None = None) -> None:
        """What runs with the old one goes on with it. Raises as `add`, and AdapterNotFound."""
        await self._to_its_end(self._replace(name, source, fields or {}))

    async def remove(self, name: str) -> None:
        """What runs with it goes on. Raises AdapterNotFound."""
        await self._to_its_end(self._remove(name))

    async def _to_its_end(self, change: Coroutine[Any, Any, None]) -> None:
        """Also where the client that asked for it leaves: engine and scripts must not differ."""
        task = asyncio.create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        await asyncio.shield(task)

    async def _add(self, name: str, source: str, fields: Mapping[str, str]) -> None:
        self._check_new(name)
        if isinstance(self._backend, HandlerBackend):
            async with self._lock:
                self._check_new(name)
                await self._backend.register_adapter(name, source, fields)
            return
        folder = await self._folder(source)  # which may take minutes, in which others can change
        async with self._lock:
            self._check_new(name)
            await self._load(name, folder)

    async def _replace(self, name: str, source: str | None, fields: Mapping[str, str]) -> None:
        before = self.folder(name)
        if isinstance(self._backend, HandlerBackend):
            async with self._lock:
                self.folder(name)
                await self._backend.update_adapter(name, source, fields)
            return
        folder = await self._folder(str(before) if source is None else source)
        async with self._lock:
            self.folder(name)
            await self._load(name, folder)

    async def _remove(self, name: str) -> None:
        async with self._lock:
            self.folder(name)
            if name in self._backend.adapters:
                await self._backend.unload_adapter(name)
            self._code.unload_adapter(name)
            self._loaded_from.pop(name, None)

    def _check_new(self, name: str) -> None:
        if name in self.folders:
            raise AdapterExists(f"there is an adapter `{name}` already: update or delete it")

    async def _load(self, name: str, folder: Path) -> None:
        has_weights, has_script = self._contents(folder)
        script = await asyncio.to_thread(self._code.read_adapter, folder) if has_script else None
        try:
            if has_weights:
                await self._backend.load_adapter(name, folder)
            elif name in self._backend.adapters:
                await self._backend.unload_adapter(name)
        except BaseException:
            if script is not None:
                script.script.unload()
            raise
        for warning in script.formatters.warnings if script is not None else ():
            logger.warning("adapter %s: %s", name, warning)
        self._code.set_adapter(name, script, has_weights)
        self._loaded_from[name] = folder

    def _contents(self, folder: Path) -> tuple[bool, bool]:
        """Whether there are weights, and whether there is a script."""
        has_weights, has_script = ((folder / name).is_file() for name in (ADAPTER_WEIGHTS, SCRIPT))
        if not has_weights and not has_script:
            raise InvalidAdapter(f"{folder} has neither {ADAPTER_WEIGHTS} nor {SCRIPT}")
        return has_weights, has_script

    async def _folder(self, source: str) -> Path:
        """Raises InvalidAdapter."""
        if not is_s3(source):
            return self._existing(source)
        try:
            return await fetch(RemoteModel(source, everything=True))
        except ConfigurationError as error:
            raise InvalidAdapter(f"`src` cannot be downloaded: {error.message}") from error

    def _existing(self, source: str) -> Path:
        """Relative to the model directory."""
        try:
            folder = (self._directory / source).resolve()
            if folder.is_dir():
                return folder
        except (OSError, RuntimeError, ValueError):  # too long, links in a circle, a null byte
            pass
        raise InvalidAdapter(f"`src` must be a folder on the server's host, or an s3:// URL. Given: {shown(source)}")
