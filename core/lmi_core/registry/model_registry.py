"""The models of a server, which can be added and removed at run time."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple, Self

from lmi_core.configuration.host_patterns import Host
from lmi_core.configuration.properties import ServerProperties
from lmi_core.errors import ConfigurationError, LmiError, ModelExists, ModelNotFound, ModelNotReady, OutOfMemory
from lmi_core.registry.memory_planner import MemoryPlanner
from lmi_core.registry.registered_model import ModelState, RegisteredModel, Versions, loading_error
from lmi_core.registry.registration import ModelReader, Registration
from lmi_core.served_model import ManagedModel
from lmi_core.serving.model import Model
from lmi_core.serving.own_code import code_that_runs

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 60.0


class Limits(NamedTuple):
    """The maximum body size, the maximum number of JSON members, and all patterns of host names."""

    max_request_size: int
    max_request_members: int
    allowed_hosts: frozenset[Host]

    @classmethod
    def of(cls, servers: Sequence[ServerProperties]) -> Self:
        """Return the widest limits of these options; the defaults without options."""
        servers = servers or [ServerProperties()]
        return cls(
            max(server.max_request_size for server in servers),
            max(server.max_request_members for server in servers),
            frozenset().union(*(server.host_patterns for server in servers)),
        )


class ModelRegistry:
    """The registered models by name and version.

    Mappings for requests, such as `models`, are replaced as a whole when a model is added or removed, so iterating over
    them is safe. They contain no loading models, except at the start of the server.
    """

    def __init__(self, models: Iterable[Model], reader: ModelReader | None = None) -> None:
        self.models: Mapping[str, Model] = {}  # the default version of each name
        self.by_served_name: Mapping[str, Model] = {}  # the same, by all names that requests may give
        self.only_model: Model | None = None  # if no other model is served
        self.with_versions = frozenset[str]()  # the models of which several versions are registered
        self.default_model: Model | None = None  # for requests that name none: the only one, now or at the start
        self.has_had_several = False
        self.changed = asyncio.Event()  # replaced whenever it is set, which is when models are added or removed
        self.drain_seconds = DRAIN_SECONDS
        self.memory_planner = MemoryPlanner()
        self.reader = reader
        self.gaps: dict[ManagedModel, asyncio.Event] = {}  # of models whose only engine is being replaced
        self.replacing = defaultdict[str, asyncio.Lock](asyncio.Lock)  # by name: one replacement after the other
        self._versions: dict[str, Versions] = {}
        self._limits: Limits | None = None  # None: to be determined again
        self._leaving: set[RegisteredModel] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        for model in models:
            registration = Registration(model.name, str(model.plan.directory), model.version)
            self._add(RegisteredModel(registration, model, at_startup=True))
        self._at_startup = list(self._versions)
        self.publish(*self._versions)

    @property
    def names(self) -> list[str]:
        """The names of all registered models, in order."""
        return sorted(self._versions)

    async def load_first(self, model: Model) -> None:
        """Load a model at the start of the server.

        Raise ConfigurationError if that fails, OutOfMemory if it does not fit.
        """
        async with self.memory_planner.reserve(model, self.all_versions, self.make_idle):
            await model.start()

    def begin(self) -> None:
        """Finish the start of the server, and begin to unload idle models whose options allow it."""
        for registered in self.all_versions():
            registered.note_loaded()
        self.publish(*self._versions)
        self.spawn(self._unload_idle())

    def versions(self, name: str) -> Versions:
        """Return the versions of a model. Raise ModelNotFound if none is registered."""
        if name not in self._versions:
            raise ModelNotFound(f"model `{name}` is not registered")
        return self._versions[name]

    def find_registered(self, name: str, version: str | None = None) -> RegisteredModel:
        """Return a version of a model, by default its default version. Raise ModelNotFound if it is not registered."""
        versions = self.versions(name)
        found = versions.default if version is None else versions.get(version)
        if found is None:
            known = ", ".join(each.version or "(none)" for each in versions)
            raise ModelNotFound(f"model `{name}` has no version `{version}`. Registered: {known}")
        return found

    def all_versions(self) -> Iterator[RegisteredModel]:
        """Yield every version of every registered model."""
        for versions in self._versions.values():
            yield from versions

    def find_all(self, name: str, version: str | None) -> list[RegisteredModel]:
        """Return all versions of a model, or one, even if being removed. Raise ModelNotFound if there are none."""
        known = (*self._versions.get(name, ()), *self._leaving)
        found = [each for each in known if each.name == name and version in (None, each.version)]
        return found or [self.find_registered(name, version)]

    @property
    def leaving(self) -> list[RegisteredModel]:
        """Removed models that still finish their requests."""
        return list(self._leaving)

    def all_models(self) -> Iterator[Model]:
        """Yield every version of every model, including those being loaded or removed."""
        for each in (*self.all_versions(), *self._leaving):
            if each.model is not None:
                yield each.model

    def version_of(self, model: Model, version: str) -> Model:
        """Return another version of a model; the model itself if the version is unknown.

        Raise ModelNotReady if it is not served.
        """
        found = self._versions[model.name].get(version) if model.name in self._versions else None
        if found is None or found.model is model:
            return model
        if found.model is None or not found.is_served:
            raise found.refuse()
        return found.model

    def served_versions(self, name: str) -> list[Model]:
        """Return the served versions of a model, in the order of registration."""
        return [each.model for each in self._versions.get(name, ()) if each.is_served and each.model is not None]

    def unserved_error(self, name: str) -> LmiError | None:
        """Return why a registered model is not served now; None if no model of that name is registered."""
        return self._versions[name].default.refuse() if name in self._versions else None

    def register(
        self, registration: Registration, *, default: bool = False, load: "Load | None" = None
    ) -> RegisteredModel:
        """Start loading a model, and return it immediately; its `loading` ends when it is served or has failed.

        With `default`, it becomes the default version once it is served, unless another one is chosen in the meantime.
        `load` loads it instead of the method of this name. Raise ModelExists if this version is already registered and
        has not failed.
        """
        if self.reader is None:
            raise ConfigurationError("this server accepts no more models")
        before = (
            self._versions[registration.name].get(registration.version) if registration.name in self._versions else None
        )
        if before is not None and before.state is not ModelState.FAILED:
            version = _in_version(registration.version)
            raise ModelExists(f"model `{registration.name}` is registered{version} already: unregister it first")
        registered = RegisteredModel(registration)
        self._add(registered)
        if default:
            self._versions[registration.name].choose(registered)
        registered.begin(self.spawn(self._read_and_load(registered, self.reader, load or ModelRegistry.load)))
        return registered

    async def _read_and_load(self, registered: RegisteredModel, reader: ModelReader, load: "Load") -> None:
        """Load a model that is being registered; on failure, set `failure` and leave nothing behind."""
        name = registered.name
        try:
            model = registered.model = await reader(registered.registration, registered.progress.report)
            self._check_served_names(model)
            await load(self, registered)
        except BaseException as error:
            if registered.loaded_at is None:  # otherwise it may have calls
                await asyncio.shield(self.spawn(registered.discard()))
            if not isinstance(error, Exception):
                raise
            registered.failure = loading_error(error, name)
            logger.error("model %s was not registered: %s", name, registered.failure.message)

    async def load(self, registered: RegisteredModel) -> None:
        """Load a version whose directory has been read. Raise LmiError if that fails."""
        model = registered.model
        assert model is not None
        async with self.memory_planner.reserve(model, self.all_versions, self.make_idle):
            await model.start()
        self.note_loaded(registered)

    def note_loaded(self, registered: RegisteredModel) -> None:
        """Serve a version that has been loaded."""
        model = registered.model
        assert model is not None
        registered.note_loaded()
        self.publish(name := registered.name)
        logger.info("model %s is registered%s: %s", name, _in_version(model.version), model.plan.served_by)
        logger.info("model %s runs this code: %s", name, code_that_runs(model.plan))

    def _check_served_names(self, model: Model) -> None:
        for name in model.names:
            other = self.by_served_name.get(name)
            if other is not None and other.name != model.name:
                raise ModelExists(
                    f"model `{other.name}` is served as `{name}` already: give the other one another "
                    "option.served_model_name, or another model_name"
                )

    def forget_failed(self, registered: RegisteredModel) -> None:
        """Remove a failed model after its failure has been reported."""
        if self.has(registered) and not registered.is_served:
            self._remove(registered)

    def has(self, registered: RegisteredModel) -> bool:
        """Return whether this version is still registered."""
        versions = self._versions.get(registered.name)
        return versions is not None and versions.get(registered.version) is registered

    async def unregister(
        self, registered: RegisteredModel, successor: AbstractContextManager[None] | None = None
    ) -> None:
        """Remove a model: new requests do not find it, and it is unloaded after its running calls.

        After `drain_seconds`, these end with an error, and loading stops at once. With a `successor`, they have no time
        limit until this is called again; the `successor` context is entered while the model is unloaded.
        """
        if registered in self._leaving:
            registered.limit_drain(self.drain_seconds)
            await registered.left.wait()
            return
        self._remove(registered)
        registered.leaving = True
        self._leaving.add(registered)
        await asyncio.shield(self.spawn(self._leave(registered, successor)))

    async def _leave(self, registered: RegisteredModel, successor: AbstractContextManager[None] | None) -> None:
        try:
            if (loading := registered.loading) is not None:
                if successor is None:
                    loading.cancel()
                await asyncio.wait([loading])
            seconds = self.drain_seconds if successor is None else None
            await registered.drain(seconds, ModelNotReady(f"model {registered.name} was unregistered"))
            async with registered.changing:
                with successor or nullcontext():
                    await registered.discard()
        finally:
            self._leaving.discard(registered)
            registered.left.set()
        logger.info("model %s is unregistered%s", registered.name, _in_version(registered.version))

    def choose_default(self, registered: RegisteredModel) -> None:
        """Make this the version for requests without a version. Raise ModelNotReady if it is not served."""
        if not registered.is_served:
            raise registered.refuse()
        self._versions[registered.name].choose(registered)
        self.publish(registered.name)

    async def wake(self, model: Model) -> None:
        """Load an idle model, and wait for it. Raise ModelNotReady if it cannot be loaded."""
        if model.ready:
            return
        registered = next((each for each in self.versions(model.name) if each.model is model), None)
        if registered is None:
            raise ModelNotReady(f"model {model.name} was unregistered")
        if registered.loading is None:
            registered.begin(self.spawn(self._wake(registered, model)))
        loading = registered.loading
        assert loading is not None
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            if not loading.cancelled():
                raise
            raise ModelNotReady(f"model {model.name} was unregistered") from None

    async def _wake(self, registered: RegisteredModel, model: Model) -> None:
        async with registered.changing:
            if model.ready:
                return
            if registered.leaving:  # it was replaced meanwhile
                raise ModelNotReady(f"model {model.name} was unregistered")
            try:
                async with self.memory_planner.reserve(model, self.all_versions, self.make_idle):
                    await model.start()
                await model.adapters.restore(model.idle_adapters, model.idle_pinned)
            except BaseException as error:
                await asyncio.shield(self.spawn(model.unload()))
                if not isinstance(error, Exception):
                    raise
                registered.failure = loading_error(error, model.name)
                logger.error("model %s could not be loaded again: %s", model.name, registered.failure.message)
                refused = registered.failure if isinstance(registered.failure, OutOfMemory) else registered.refuse()
                raise refused from error
            model.idle = False
            registered.note_loaded()
        self.publish(model.name)
        logger.info("model %s is loaded again", model.name)

    async def make_idle(self, registered: RegisteredModel) -> bool:
        """Unload an unused model until its next request, and return whether it was unloaded."""
        async with registered.changing:
            model = registered.model
            if model is None or not model.ready or model.usage.calls:
                return False
            await model.become_idle()
        self.publish(model.name)
        logger.info("model %s is unloaded until %s", model.name, "PUT" if model.shut_down else "its next request")
        return True

    async def shut_down(self, registered: RegisteredModel, model: Model) -> None:
        """Refuse further calls, and unload the model once the running ones have finished, within `drain_seconds`."""
        model.shut_down = True
        await registered.drain(self.drain_seconds, ModelNotReady(f"model {model.name} was shut down"))
        await self.make_idle(registered)

    async def _unload_idle(self) -> None:
        """Unload models after their `max_idle_time` without requests."""
        while True:
            changed = self.changed
            waits = {each: wait for each in self.all_versions() if (wait := each.seconds_until_idle) is not None}
            for registered in [each for each, wait in waits.items() if wait <= 0]:
                await self.make_idle(registered)
            pause = min((wait for wait in waits.values() if wait > 0), default=None)
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), pause)

    async def stop(self) -> None:
        """Cancel every task that loads or unloads a model, and wait for them to end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _add(self, registered: RegisteredModel) -> None:
        self._versions.setdefault(registered.name, Versions()).add(registered)
        self._note_versions()

    def _remove(self, registered: RegisteredModel) -> None:
        versions = self.versions(registered.name)
        versions.remove(registered)
        if not versions:
            del self._versions[registered.name]
        self._note_versions()
        self.publish(registered.name)

    def _note_versions(self) -> None:
        self.with_versions = frozenset(name for name, versions in self._versions.items() if len(versions) > 1)

    def publish(self, *names: str) -> None:
        """Publish the current versions of these models to requests."""
        models, by_served_name = dict(self.models), dict(self.by_served_name)
        for name in names:
            before, now = models.pop(name, None), self._served_model(name)
            for alias in before.names if before is not None else ():
                del by_served_name[alias]
            if now is not None:
                models[name] = now
                by_served_name.update(dict.fromkeys(now.names, now))
        self.models, self.by_served_name, self._limits = models, by_served_name, None
        self.only_model = next(iter(models.values())) if len(models) == 1 else None
        self.has_had_several |= len(models) > 1
        first = models.get(self._at_startup[0]) if len(self._at_startup) == 1 else None
        self.default_model = self.only_model or first
        self.changed.set()
        self.changed = asyncio.Event()

    def _served_model(self, name: str) -> Model | None:
        """Return the model for requests without a version; None if there is none now."""
        default = self._versions[name].default if name in self._versions else None
        return default.model if default is not None and default.is_served else None

    @property
    def limits(self) -> Limits:
        """The limits of requests whose model is not known yet."""
        if self._limits is None:
            self._limits = Limits.of([model.server for model in self.all_models()])
        return self._limits

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the work in a task that ends with the registry."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _in_version(version: str | None) -> str:
    return "" if version is None else f" in version {version}"


Load = Callable[[ModelRegistry, RegisteredModel], Coroutine[Any, Any, None]]
