"""Dispatch of requests to models, and their start and stop."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from lmi_core.admission.admission import Ticket
from lmi_core.admission.time_limits import TimeLimits
from lmi_core.errors import BackendGivenUp, BackendUnhealthy, ConfigurationError, ModelNotFound, ModelNotReady
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_core.metrics.model_metrics import ServerMetrics
from lmi_core.registry.model_registry import ModelRegistry
from lmi_core.registry.registered_model import ModelState
from lmi_core.registry.registration import ModelReader
from lmi_core.served_model import ManagedModel
from lmi_core.serving.model import Model
from lmi_core.serving.model_plan import ModelPlan

logger = logging.getLogger(__name__)

SHUTTING_DOWN = "the server is shutting down"
ERROR_SECONDS = 1.0  # to wait for the errors of unfinished requests, which their clients may not read


class Dispatcher:
    """The models of one server by name."""

    def __init__(self, models: Mapping[str, Model], reader: ModelReader | None = None) -> None:
        """Serve these models; with a `reader`, more models can be registered."""
        self.registry = ModelRegistry(models.values(), reader)
        self.in_flight = 0
        self.metrics = ServerMetrics()
        self.draining = False
        self._idle = asyncio.Event()

    @property
    def models(self) -> Mapping[str, Model]:
        """The current default version of each model, by name."""
        return self.registry.models

    def all_models(self) -> Iterator[Model]:
        """Yield every version of every model, including those being loaded or removed."""
        return self.registry.all_models()

    def find(self, name: str | None) -> Model:
        """Return the model with that name or, without one, the only model, now or at the start.

        Raise ModelNotFound if there is none.
        """
        if name is None:
            return self._default()
        found = self.registry.by_served_name.get(name) or self._find_version(name)
        if found is None:
            raise self.registry.unserved_error(name) or self._not_served_error(name)
        return found

    def _default(self) -> Model:
        model = self.registry.default_model
        if model is not None:
            return model
        if not self.models:
            raise ModelNotFound("no model is served yet: POST /models registers one")
        raise ModelNotFound(f"several models are served; name one of: {', '.join(sorted(self.models))}")

    def version_asked(self, name: str | None) -> Model:
        """Return the only model, in the version that a body asks for as `name:version`.

        Raise ModelNotFound for an unknown version; the dialect checks any other name.
        """
        only = self._default()
        if not name or only.name not in self.registry.with_versions or name in self.registry.by_served_name:
            return only
        if (found := self._find_version(name)) is not None:
            return found
        if name.rpartition(":")[0] in self.registry.by_served_name:
            raise self._not_served_error(name)
        return only

    def versions(self, name: str) -> list[Model]:
        """Return the served versions of the model with that name, the default first."""
        default = self.find(name)
        others = [each for each in self.registry.served_versions(default.name) if each is not default]
        return [default, *others]

    def _find_version(self, name: str) -> Model | None:
        """Return the version of a model that `name:version` names, or None."""
        base, colon, version = name.rpartition(":")
        model = self.registry.by_served_name.get(base)
        if model is None or not colon:
            return None
        found = self.registry.version_of(model, version)
        return found if found.version == version else None

    def _not_served_error(self, name: str) -> ModelNotFound:
        known = sorted(self.registry.by_served_name)
        hint = did_you_mean(name, known)
        return ModelNotFound(f"model `{name}` is not served.{hint} Served: {', '.join(known) or 'none'}")

    def find_with_adapters(self, name: str | None) -> Model:
        """Return the model with that name, or the model with an adapter of that name.

        Raise ModelNotFound also if several models have such an adapter.
        """
        models = self.models.values()
        if name is None or name in self.registry.by_served_name:
            return self.find(name)
        owners = [model for model in models if name in model.adapter_names]
        if not owners:
            return self.find(name)
        if len(owners) > 1:
            raise ModelNotFound(
                f"several models have an adapter `{name}`: give one of {', '.join(each.name for each in owners)} as "
                "`model`, and the adapter as `adapters`"
            )
        return owners[0]

    def check_place(self, model: ManagedModel) -> None:
        """Raise Overloaded or ModelNotReady if the model's queue has no free place; do not take one."""
        if self.draining:
            raise ModelNotReady(SHUTTING_DOWN)
        model.check_place()

    @contextmanager
    def admit(self, model: ManagedModel) -> Iterator[Ticket]:
        """Take a place in the model's queue, after the request has been read. Raise Overloaded or ModelNotReady."""
        if self.draining:
            raise ModelNotReady(SHUTTING_DOWN)
        with model.usage.call(), model.admit() as ticket:
            self.in_flight += 1
            try:
                yield ticket
            finally:
                self.in_flight -= 1
                if self.in_flight == 0:
                    self._idle.set()

    async def bridge(self, model: ManagedModel) -> bool:
        """Wait in a model's queue if its only engine is being replaced, and return whether to look the model up again.

        Raise Overloaded if the queue is full, or QueueTimeout if the wait takes too long.
        """
        gap = self.registry.gaps.get(model)
        if gap is None or self.draining:
            return False
        with model.admission.admit():
            try:
                async with asyncio.timeout(model.options.queue_timeout or None):
                    await gap.wait()
            except TimeoutError:
                raise TimeLimits.of(model.options).queue_error() from None
        return True

    async def drain(self, seconds: float) -> None:
        """Refuse further requests, and wait at most `seconds` for those in flight."""
        self.draining = True
        for gap in self.registry.gaps.values():
            gap.set()
        if self.in_flight:
            self._idle.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), seconds)

    async def end_requests(self) -> None:
        """End the requests in flight with an error, and give them a moment to send it."""
        if not self.in_flight:
            return
        self._idle.clear()
        logger.warning("%d requests did not finish in time and end with an error", self.in_flight)
        for model in self.registry.all_models():
            model.fail_calls(ModelNotReady(SHUTTING_DOWN))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), ERROR_SECONDS)

    async def start(self) -> None:
        """Load every model. Raise ConfigurationError if one fails, and stop loading the others."""
        try:
            async with asyncio.TaskGroup() as group:
                for model in self.registry.all_models():
                    group.create_task(self.registry.load_first(model))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        self.registry.begin()

    async def wake(self, model: Model) -> None:
        """Load an idle model, and wait for it. Raise ModelNotReady or OutOfMemory if it cannot be loaded."""
        if not model.ready:
            await self.registry.wake(model)

    async def wait_given_up(self) -> None:
        """Raise BackendGivenUp when the engines of all served models have failed permanently."""
        while True:
            models = [model for model in self.registry.all_models() if model.ready]
            given_up = asyncio.create_task(_wait_all_given_up(models))
            changed = asyncio.ensure_future(self.registry.changed.wait())
            try:
                await asyncio.wait((given_up, changed), return_when=asyncio.FIRST_COMPLETED)
                if models and given_up.done():
                    reasons = zip(models, given_up.result(), strict=True)
                    raise BackendGivenUp("; ".join(f"model {model.name}: {why}" for model, why in reasons))
                await changed
            finally:
                given_up.cancel()
                changed.cancel()

    async def stop(self) -> None:
        await self.registry.stop()
        results = await asyncio.gather(*(model.stop() for model in self.registry.all_models()), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                logger.error("a model did not stop cleanly", exc_info=result)

    async def health(self, *, may_be_empty: bool = False) -> None:
        """Raise ModelNotReady or BackendUnhealthy unless every model can accept requests; idle models can.

        A server without models is healthy, but not while its only models load, unless it `may_be_empty`.
        """
        if self.draining:
            raise ModelNotReady(SHUTTING_DOWN)
        for model in self.models.values():
            try:
                await model.health()
            except BackendUnhealthy as error:  # an engine does not know the name
                raise BackendUnhealthy(f"model {model.name}: {error.message}", error.retry_after) from error
        if self.models or may_be_empty:
            return
        for registered in self.registry.all_versions():
            if registered.state in (ModelState.FETCHING, ModelState.LOADING):
                raise registered.refuse()


async def _wait_all_given_up(models: Iterable[Model]) -> list[str]:
    """Wait until all models have failed permanently, and return the reason.

    Must run in a task: a cancelled `gather` complains about exceptions that were never retrieved.
    """
    return await asyncio.gather(*(model.runtime.given_up() for model in models))


def check_names(plans: Iterable[ModelPlan]) -> None:
    """Raise ConfigurationError if two models have the same name."""
    owners: dict[str, str] = {}
    for plan in plans:
        for name in plan.names:
            owner = owners.setdefault(name, plan.name)
            if owner != plan.name:
                raise ConfigurationError(
                    f"models {owner} and {plan.name} would both be served as `{name}`: give one of them another "
                    "option.served_model_name, or its directory another name"
                )
