"""A registered version of a model, from its registration to its end."""

import asyncio
import logging
import time
from collections.abc import Iterator
from enum import StrEnum

from lmi_core.errors import ConfigurationError, InvalidModel, LmiError, ModelNotReady, OutOfMemory
from lmi_core.host.devices import visible_gpus
from lmi_core.logs.loading_progress import LoadingProgress
from lmi_core.registry.registration import Registration
from lmi_core.serving.model import Model

logger = logging.getLogger(__name__)

ERROR_SECONDS = 1.0  # to wait for the errors of unfinished calls, which their clients may not read


class ModelState(StrEnum):
    """The state of a registered model."""

    FETCHING = "fetching"
    LOADING = "loading"
    READY = "ready"
    IDLE = "idle"  # unloaded; the next request loads it
    UNLOADING = "unloading"
    FAILED = "failed"


class RegisteredModel:
    """One version of a model; `model` is set after its directory is read, until the model has failed or is removed."""

    def __init__(self, registration: Registration, model: Model | None = None, *, at_startup: bool = False) -> None:
        self.registration = registration
        self.model = model
        self.at_startup = at_startup
        self.failure: LmiError | None = None
        self.leaving = False
        self.left = asyncio.Event()  # set once it is removed and unloaded
        self.changing = asyncio.Lock()  # held while the model is loaded or unloaded
        self.loading: asyncio.Task[None] | None = None  # started by a registration, or by a request to an idle model
        self.loaded_at: float | None = None  # seconds since 1970
        self._progress = LoadingProgress()
        self._patience: asyncio.Timeout | None = None  # of a drain
        self._drained_by: float | None = None  # the time of the event loop when a drain without a limit ends

    @property
    def name(self) -> str:
        return self.registration.name

    @property
    def version(self) -> str | None:
        return self.registration.version

    @property
    def progress(self) -> LoadingProgress:
        """The progress of downloading and loading it."""
        return self._progress if self.model is None else self.model.progress

    @property
    def state(self) -> ModelState:
        if self.leaving:
            return ModelState.UNLOADING
        if self.failure is not None and not self.is_served:
            return ModelState.FAILED
        if self.model is None:
            return ModelState.FETCHING
        if self.model.ready:
            return ModelState.READY
        return ModelState.IDLE if self.model.idle else ModelState.LOADING

    @property
    def is_served(self) -> bool:
        """Whether requests find the model.

        Models of the server's start are found, and refuse requests, while they load.
        """
        model = self.model
        return model is not None and not self.leaving and (model.ready or model.idle or self.at_startup)

    @property
    def seconds_until_idle(self) -> float | None:
        """The seconds until the model can be unloaded as idle; None if it stays loaded."""
        model = self.model
        if model is None or self.state is not ModelState.READY:
            return None
        if not model.server.unload_idle and model.server.workers(visible_gpus())[0] > 0:
            return None
        return model.server.max_idle_time - model.usage.unused_seconds

    def refuse(self) -> LmiError:
        """Return the error for requests to a model that is not served now."""
        if self.failure is not None:
            failed = ModelNotReady(f"model {self.name} could not be loaded: {self.failure.message}")
            failed.retry_after = None  # loading is not retried
            return failed
        stage = f": {self.progress}" if self.progress.what else ""
        return ModelNotReady(f"model {self.name} is loading{stage}")

    async def drain(self, seconds: float | None, error: LmiError) -> None:
        """Wait at most this long for the model's calls, and end the rest with the error; with None, wait for all."""
        model = self.model
        if model is None or await self._wait_unused(model, seconds):
            return
        logger.warning(
            "model %s: %d requests did not finish in time and end with an error", self.name, model.usage.calls
        )
        model.fail_calls(error)
        await self._wait_unused(model, ERROR_SECONDS)
        model.running.accept()  # it may be loaded again

    async def _wait_unused(self, model: Model, seconds: float | None) -> bool:
        try:
            now = asyncio.get_running_loop().time()
            async with asyncio.timeout_at(self._drained_by if seconds is None else now + seconds) as self._patience:
                await model.usage.wait_unused()
        except TimeoutError:
            return False
        finally:
            self._patience = None
        return True

    def limit_drain(self, seconds: float) -> None:
        """Let a drain without a limit wait only this long from now."""
        self._drained_by = asyncio.get_running_loop().time() + seconds
        if self._patience is not None and self._patience.when() is None:
            self._patience.reschedule(self._drained_by)

    async def discard(self) -> None:
        """Stop the model, and release everything it holds on this host."""
        model, self.model = self.model, None
        if model is not None:
            try:
                await model.stop()
            except Exception:
                logger.exception("model %s did not stop cleanly", self.name)
            model.plan.code.unload()
            await asyncio.to_thread(model.copies.release_all)

    def begin(self, loading: asyncio.Task[None]) -> None:
        """Keep the task that loads the model until it ends."""
        self.loading = loading
        loading.add_done_callback(self._end)

    def _end(self, loading: asyncio.Task[None]) -> None:
        if not loading.cancelled():
            loading.exception()  # callers that wait for it get the exception
        self.loading = None

    def note_loaded(self) -> None:
        """Record that the model accepts requests from now on."""
        self.failure, self.loaded_at = None, time.time()


def loading_error(error: Exception, name: str) -> LmiError:
    """Return the error that explains why a model was not loaded."""
    if isinstance(error, ConfigurationError) and not isinstance(error, OutOfMemory):
        return InvalidModel(error.message)
    if isinstance(error, LmiError):
        return error
    logger.error("model %s: loading raised", name, exc_info=error)
    return InvalidModel(f"loading model {name} raised {type(error).__name__}: {error}")


class Versions:
    """The registered versions of a name, in the order of registration."""

    def __init__(self) -> None:
        self._by_version: dict[str | None, RegisteredModel] = {}
        self._chosen: list[RegisteredModel] = []  # most recent last; a version that is loading counts once it is served

    def __iter__(self) -> Iterator[RegisteredModel]:
        return iter(self._by_version.values())

    def __len__(self) -> int:
        return len(self._by_version)

    def get(self, version: str | None) -> RegisteredModel | None:
        return self._by_version.get(version)

    @property
    def default(self) -> RegisteredModel:
        """The version for requests without a version: the last chosen one that is served, otherwise the first served
        one.
        """
        candidates = (*reversed(self._chosen), *self)
        return next((each for each in candidates if each.is_served), next(iter(self)))

    def add(self, registered: RegisteredModel) -> None:
        """Add a version, replacing a failed one."""
        if (failed := self.get(registered.version)) is not None:
            self._unchoose(failed)
        self._by_version[registered.version] = registered

    def choose(self, registered: RegisteredModel) -> None:
        """Make a version the default, until it is removed or another one is chosen."""
        self._unchoose(registered)
        self._chosen.append(registered)

    def remove(self, registered: RegisteredModel) -> None:
        del self._by_version[registered.version]
        self._unchoose(registered)

    def _unchoose(self, registered: RegisteredModel) -> None:
        if registered in self._chosen:
            self._chosen.remove(registered)
