"""The adapters of a backend's model: weights in the engine, and formatters in their own scripts."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from lmi_core.backend import Backend
from lmi_core.configuration.location import RemoteModel
from lmi_core.configuration.model_source import copied_source
from lmi_core.errors import ConfigurationError, InvalidAdapter
from lmi_core.model_adapters import ModelAdapters
from lmi_core.payloads.payload import quote
from lmi_core.remote.fetching import fetched
from lmi_core.remote.held_copies import HeldCopies
from lmi_core.script.formatters.model_code import ADAPTER_WEIGHTS, ModelCode
from lmi_core.script.formatters.model_script import SCRIPT

logger = logging.getLogger(__name__)


class BackendAdapters(ModelAdapters):
    """The adapters of a backend's model. Each has weights for the engine, a script, or both."""

    takes_any_fields: ClassVar[bool] = False

    def __init__(self, backend: Backend[Any], code: ModelCode, directory: Path, own: Path, copies: HeldCopies) -> None:
        """Manage adapters; those in the folder `own` are loaded from the start. `copies` are the model's."""
        super().__init__()
        self._backend = backend
        self._code = code
        self._directory = directory
        self._own = own
        self._copies = copies
        self._loaded_from: dict[str, Path] = {}  # adapters added after the start
        self._pinned: set[str] = set()

    @property
    def folders(self) -> Mapping[str, Path]:
        """The folder of each adapter that a request can name now."""
        names = set(self._backend.adapters) | (self._code.adapters.keys() - self._code.adapters_with_weights)
        return {name: self._loaded_from.get(name, self._own / name) for name in sorted(names)}

    @property
    def pinned(self) -> Collection[str]:
        """The adapters that the engine does not evict; those without weights are never evicted anyway."""
        return self._pinned

    async def _add(self, name: str, source: str, fields: Mapping[str, str], *, pin: bool) -> None:
        self._check_new(name)
        # Fetching may take minutes, during which other adapters can change.
        async with self._local_folder(source) as folder, self._lock:
            self._check_new(name)
            await self._load(name, folder, pin)

    async def _replace(self, name: str, source: str | None, fields: Mapping[str, str], *, pin: bool | None) -> None:
        before = self.folder(name)
        if source is None and pin is not None:
            async with self._lock:
                self.folder(name)
                if pin != (name in self._pinned) and name in self._backend.adapters:
                    await self._backend.pin_adapter(name, pin)
                self._note_pin(name, pin)
            return
        async with self._local_folder(str(before) if source is None else source) as folder, self._lock:
            self.folder(name)
            await self._load(name, folder, name in self._pinned if pin is None else pin)

    async def _remove(self, name: str) -> None:
        async with self._lock:
            self.folder(name)
            if name in self._backend.adapters:
                await self._backend.unload_adapter(name)
            self._code.unload_adapter(name)
            self._loaded_from.pop(name, None)
            self._copies.release(_use(name))
            self._pinned.discard(name)

    def _note_pin(self, name: str, pin: bool) -> None:
        if pin:
            self._pinned.add(name)
        else:
            self._pinned.discard(name)

    async def _load(self, name: str, folder: Path, pin: bool) -> None:
        has_weights, has_script = self._contents(folder)
        script = await asyncio.to_thread(self._code.read_adapter, folder) if has_script else None
        try:
            if has_weights:
                await self._load_weights(name, folder, pin)
            elif name in self._backend.adapters:
                await self._backend.unload_adapter(name)
        except BaseException:
            if script is not None:
                script.unload()
            raise
        for warning in script.warnings if script is not None else ():
            logger.warning("adapter %s: %s", name, warning)
        self._code.set_adapter(name, script, has_weights)
        self._loaded_from[name] = folder
        self._copies.keep(_use(name), folder)
        self._note_pin(name, pin)

    async def _load_weights(self, name: str, folder: Path, pin: bool) -> None:
        """Load weights, and pin them if asked. On failure, nothing changes."""
        backend, pinned = self._backend, name in self._pinned
        if name not in backend.adapters:
            await backend.load_adapter(name, folder)
            try:
                if pin:
                    await backend.pin_adapter(name, True)
            except BaseException:
                await backend.unload_adapter(name)
                raise
            return
        if pin != pinned:
            await backend.pin_adapter(name, pin)
        try:
            await backend.load_adapter(name, folder)
        except BaseException:
            if pin != pinned:
                await backend.pin_adapter(name, pinned)
            raise

    def _contents(self, folder: Path) -> tuple[bool, bool]:
        """Return whether there are weights, and whether there is a script. Raise InvalidAdapter if both are missing."""
        has_weights, has_script = ((folder / name).is_file() for name in (ADAPTER_WEIGHTS, SCRIPT))
        if not has_weights and not has_script:
            raise InvalidAdapter(f"{folder} contains neither {ADAPTER_WEIGHTS} nor {SCRIPT}")
        return has_weights, has_script

    @asynccontextmanager
    async def _local_folder(self, source: str) -> AsyncIterator[Path]:
        """Yield a local folder, after copying a URL or an archive. Raise InvalidAdapter if that fails."""
        async with AsyncExitStack() as kept:
            try:
                copied = copied_source(self._directory, source)
                if copied is None:
                    folder = self._existing(source)
                else:
                    folder = await kept.enter_async_context(fetched(RemoteModel(copied, everything=True)))
            except ConfigurationError as error:
                raise InvalidAdapter(f"`src` cannot be downloaded: {error.message}") from error
            yield folder

    def _existing(self, source: str) -> Path:
        """Return the folder of a path, which may be relative to the model directory.

        Raise InvalidAdapter if it does not exist.
        """
        try:
            folder = (self._directory / source).resolve()
            if folder.is_dir():
                return folder
        except (OSError, RuntimeError, ValueError):  # too long a path, circular links, or a null byte
            pass
        raise InvalidAdapter(
            "`src` must be a folder or an archive on the server's host, an s3:// URL, or the URL of an archive. Given: "
            f"{quote(source)}"
        )


def _use(adapter: str) -> str:
    """Return the purpose for which the copy of an adapter is held."""
    return f"adapter {adapter}"
