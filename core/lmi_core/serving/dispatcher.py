"""Dispatch of requests to models, and their start and stop."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from lmi_core.calls.served_model import ManagedModel
from lmi_core.did_you_mean import did_you_mean
from lmi_core.errors import BackendGivenUp, ConfigurationError, ModelNotFound, ModelNotReady
from lmi_core.serving.hosts import Host
from lmi_core.serving.model import Model
from lmi_core.serving.model_plan import ModelPlan

logger = logging.getLogger(__name__)


class Dispatcher:
    """The models of one server by name."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        self.models = models
        self.in_flight = 0
        self.draining = False
        self._idle = asyncio.Event()

    @property
    def only_model(self) -> Model | None:
        """The model for requests that name none, if it is the only one."""
        return next(iter(self.models.values())) if len(self.models) == 1 else None

    def find(self, name: str | None) -> Model:
        """Return the model of that name or, without a name, the only model. Raise ModelNotFound otherwise."""
        if name is None:
            model = self.only_model
            if model is None:
                raise ModelNotFound(f"several models are served; name one of: {', '.join(sorted(self.models))}")
            return model
        found = self.models.get(name) or next((each for each in self.models.values() if name in each.names), None)
        if found is None:
            known = [known for each in self.models.values() for known in each.names]
            hint = did_you_mean(name, known)
            raise ModelNotFound(f"model `{name}` is not served.{hint} Served: {', '.join(sorted(known))}")
        return found

    def find_with_adapters(self, name: str | None) -> Model:
        """Return the model of that name, or the one that has an adapter of that name.

        Raise ModelNotFound also for an adapter that several models have.
        """
        models = self.models.values()
        if name is None or any(name in model.names for model in models):
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

    @property
    def max_request_size(self) -> int:
        """The maximum size, in bytes, of a body that is read before its model is known."""
        return max(model.plan.server.max_request_size for model in self.models.values())

    @property
    def allowed_hosts(self) -> frozenset[Host]:
        """The patterns of this server's host names, as declared by its operator."""
        return frozenset().union(*(model.plan.server.host_patterns for model in self.models.values()))

    @contextmanager
    def admit(self, model: ManagedModel) -> Iterator[None]:
        """Enter the model's queue, before the request is read. Raise Overloaded or ModelNotReady."""
        if self.draining:
            raise ModelNotReady("the server is shutting down")
        with model.admit():
            self.in_flight += 1
            try:
                yield
            finally:
                self.in_flight -= 1
                if self.in_flight == 0:
                    self._idle.set()

    async def drain(self, seconds: float) -> None:
        """Refuse further requests, and wait at most `seconds` for those in flight."""
        self.draining = True
        if self.in_flight:
            self._idle.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), seconds)

    async def start(self) -> None:
        """Load every model. Raise ConfigurationError where one fails, which ends the loading of the others."""
        try:
            async with asyncio.TaskGroup() as group:
                for model in self.models.values():
                    group.create_task(model.start())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def wait_given_up(self) -> None:
        """Raise BackendGivenUp once every model's engine has failed for good."""
        reasons = await asyncio.gather(*(model.runtime.given_up() for model in self.models.values()))
        raise BackendGivenUp("; ".join(f"model {name}: {why}" for name, why in zip(self.models, reasons, strict=True)))

    async def stop(self) -> None:
        results = await asyncio.gather(*(model.stop() for model in self.models.values()), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                logger.error("a model did not stop cleanly", exc_info=result)

    async def health(self) -> None:
        """Raise ModelNotReady or BackendUnhealthy unless every model can take requests."""
        if self.draining:
            raise ModelNotReady("the server is shutting down")
        for model in self.models.values():
            await model.health()


def check_names(plans: Iterable[ModelPlan]) -> None:
    """Raise ConfigurationError where two models would answer to one name."""
    owners: dict[str, str] = {}
    for plan in plans:
        for name in plan.names:
            owner = owners.setdefault(name, plan.name)
            if owner != plan.name:
                raise ConfigurationError(
                    f"models {owner} and {plan.name} would both be served as `{name}`: give one of them another "
                    "option.served_model_name, or its directory another name"
                )
