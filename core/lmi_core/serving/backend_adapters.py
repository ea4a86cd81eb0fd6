"""The adapters of a backend's model: weights in the engine, and formatters in their own scripts."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from lmi_core.backend import Backend
from lmi_core.errors import ConfigurationError, InvalidAdapter
from lmi_core.payloads.payload import shown
from lmi_core.remote.fetching import fetch
from lmi_core.remote.location import RemoteModel, is_s3
from lmi_core.script.formatters.model_code import ADAPTER_WEIGHTS, ModelCode
from lmi_core.script.formatters.model_script import SCRIPT
from lmi_core.serving.model_adapters import ModelAdapters

logger = logging.getLogger(__name__)


class BackendAdapters(ModelAdapters):
    """The adapters of a backend's model, each with weights for the engine, a script, or both."""

    takes_any_fields: ClassVar[bool] = False

    def __init__(self, backend: Backend[Any], code: ModelCode, directory: Path, own: Path) -> None:
        """Manage adapters, of which those in the folder `own` are loaded from the start."""
        super().__init__()
        self._backend = backend
        self._code = code
        self._directory = directory
        self._own = own
        self._loaded_from: dict[str, Path] = {}  # those added after the start

    @property
    def folders(self) -> Mapping[str, Path]:
        """The folder of each adapter that a request can name now."""
        names = set(self._backend.adapters) | (self._code.adapters.keys() - self._code.adapters_with_weights)
        return {name: self._loaded_from.get(name, self._own / name) for name in sorted(names)}

    async def _add(self, name: str, source: str, fields: Mapping[str, str]) -> None:
        self._check_new(name)
        folder = await self._local_folder(source)  # may take minutes, during which other adapters can change
        async with self._lock:
            self._check_new(name)
            await self._load(name, folder)

    async def _replace(self, name: str, source: str | None, fields: Mapping[str, str]) -> None:
        before = self.folder(name)
        folder = await self._local_folder(str(before) if source is None else source)
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
        """Return whether there are weights and whether there is a script. Raise InvalidAdapter if both are missing."""
        has_weights, has_script = ((folder / name).is_file() for name in (ADAPTER_WEIGHTS, SCRIPT))
        if not has_weights and not has_script:
            raise InvalidAdapter(f"{folder} contains neither {ADAPTER_WEIGHTS} nor {SCRIPT}")
        return has_weights, has_script

    async def _local_folder(self, source: str) -> Path:
        """Return a local folder, copying an `s3://` URL to it. Raise InvalidAdapter where that fails."""
        if not is_s3(source):
            return self._existing(source)
        try:
            return await fetch(RemoteModel(source, everything=True))
        except ConfigurationError as error:
            raise InvalidAdapter(f"`src` cannot be downloaded: {error.message}") from error

    def _existing(self, source: str) -> Path:
        """Return the folder of a path, perhaps relative to the model directory. Raise InvalidAdapter for any other."""
        try:
            folder = (self._directory / source).resolve()
            if folder.is_dir():
                return folder
        except (OSError, RuntimeError, ValueError):  # too long, links in a circle, a null byte
            pass
        raise InvalidAdapter(f"`src` must be a folder on the server's host, or an s3:// URL. Given: {shown(source)}")
