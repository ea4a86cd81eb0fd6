"""The steps from a registration to a model: its directory, its plan, and the model, not yet started."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from lmi_core.configuration.configuration import Setting
from lmi_core.configuration.location import is_hub_id, is_s3, is_web, must_be_copied, without_secrets
from lmi_core.configuration.model_directory import find_model_directories
from lmi_core.errors import ConfigurationError, ModelNotFound
from lmi_core.logs.loading_progress import Report
from lmi_core.plugins.loading import Plugins
from lmi_core.registry.registration import Registration
from lmi_core.remote.fetching import fetched, whole_model
from lmi_core.script.time_limits import unless
from lmi_core.serving.model import Model
from lmi_core.serving.model_plan import read_plan
from lmi_handlers.container.declarations import COMMAND_LINE
from lmi_handlers.container.locations import exists, local_directory, local_path
from lmi_handlers.container.search import hub_overrides

SOURCE = "registration"  # the source of keys that an operator set when registering the model
WAYS = (
    "give the path of a model directory or of an archive on the server's host, an s3:// URL, the URL of an archive, or "
    "the id of a model of the hub (org/name)"
)


class DirectoryReader:
    """A reader of models from directories, archives, S3 and the Hugging Face hub."""

    def __init__(
        self,
        plugins: Plugins,
        environment: Mapping[str, str],
        common: Sequence[Setting] = (),
        options: Sequence[Setting] = (),
    ) -> None:
        """Read models with these plugins.

        `common` are the server's keys for all its models. `options` override a model's own keys; a registration
        overrides both.
        """
        self._plugins = plugins
        self._environment = environment
        self._common = common
        self._options = options

    async def __call__(self, registration: Registration, report: Report) -> Model:
        url = registration.url
        if "/" in url and is_hub_id(url) and not exists(Path(url)):
            overrides = (*hub_overrides(url, SOURCE), *registration.overrides)
            return await self._prepare(registration, Path(url), overrides, report)
        source = url
        if not is_s3(url) and not is_web(url):
            path = local_path(url, COMMAND_LINE)
            if not exists(path):
                raise ModelNotFound(f"{path} does not exist: {WAYS}")
            source = str(path)
        async with fetched(whole_model(source), report) if must_be_copied(source) else nullcontext(source) as folder:
            directory = await asyncio.to_thread(self._local, url, str(folder))
            return await self._prepare(registration, directory, registration.overrides, report)

    async def _prepare(
        self, registration: Registration, directory: Path, overrides: tuple[Setting, ...], report: Report
    ) -> Model:
        """Read a model in a thread; if this is cancelled, wait for the end and drop the model."""
        report("reading the model directory", None, None)
        unwanted = threading.Event()
        with unless(unwanted):
            reading = asyncio.create_task(asyncio.to_thread(self._read, registration, directory, overrides))
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            unwanted.set()
            await asyncio.wait([reading])
            if not reading.cancelled() and reading.exception() is None:
                reading.result().plan.code.unload()
                reading.result().copies.release_all()
            raise

    def _local(self, url: str, source: str) -> Path:
        directory = local_directory(source, COMMAND_LINE, Path)
        found = find_model_directories(directory, self._environment)
        if list(found.values()) != [directory]:
            raise ConfigurationError(
                f"{without_secrets(url)} is a folder of several models ({', '.join(found)}): register each of them "
                "by its own URL"
            )
        return directory

    def _read(self, registration: Registration, directory: Path, overrides: tuple[Setting, ...]) -> Model:
        version = registration.version
        environment, plugins = self._environment, self._plugins
        overrides = (*self._options, *overrides)
        plan = read_plan(registration.name, directory, environment, plugins, self._common, version, overrides)
        try:
            return Model(plan, plugins.formatters)
        except BaseException:
            plan.code.unload()
            raise
