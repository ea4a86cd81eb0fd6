"""The replacement of a model's version by another one: side by side or, without enough memory, engine by engine."""

import asyncio
import logging
from contextlib import AbstractContextManager

from lmi_core.errors import LmiError, ModelNotReady, OutOfMemory
from lmi_core.host.devices import CPU
from lmi_core.registry.memory_planner import NOTHING, memory_need
from lmi_core.registry.model_registry import ModelRegistry
from lmi_core.registry.registered_model import ModelState, RegisteredModel, loading_error
from lmi_core.serving.model import Model
from lmi_core.workers.ray_actor import has_room
from lmi_core.workers.replicas import UNLIMITED

logger = logging.getLogger(__name__)

LOADED = (ModelState.READY, ModelState.IDLE)


async def replace_default(registry: ModelRegistry, new: RegisteredModel) -> None:
    """Load a version that becomes the default in place of the present one, if any. Raise LmiError if that fails."""
    async with registry.replacing[new.name]:
        old = registry.find_registered(new.name)
        if old is not new and old.loading is not None:
            await asyncio.wait([old.loading])
        if old.state in LOADED:
            await Replacement(registry, old, new).run()
        else:
            await registry.load(new)
            registry.choose_default(new)


class Replacement:
    """The replacement of a loaded version by one that is not loaded yet.

    Calls end in the version in which they began. New ones go to the default version, which is the new one as soon as it
    has as many engines as the old one. If no engine is left for them meanwhile, they wait.
    """

    def __init__(self, registry: ModelRegistry, old: RegisteredModel, new: RegisteredModel) -> None:
        """Both have their models."""
        assert old.model is not None
        assert new.model is not None
        self._registry = registry
        self._old, self._former = old, old.model
        self._new, self._model = new, new.model
        self._planner = registry.memory_planner
        self._exchanged = NOTHING  # at a time, if there is no memory for both versions

    async def run(self) -> None:
        """Load the new version, and remove the old one. Raise LmiError if loading fails; then the old one stays."""
        _share_state(self._former, self._model)
        try:
            async with self._planner.reserve(self._model, self._others, self._registry.make_idle):
                await self._check_cluster()
                await self._model.start()
        except OutOfMemory as error:
            if not self._former.ready:
                raise
            logger.info("%s. It gets memory and devices of the version that it replaces", error.message)
            await self._model.unload()
            await self._take_over()
        else:
            self._registry.note_loaded(self._new)
        with self._model.usage.call():  # so that it is not unloaded as idle
            self._registry.choose_default(self._new)
            if self._registry.has(self._old):
                await self._registry.unregister(self._old, self._in_exchange())
            await self._old.left.wait()  # its operator may have removed it
            with self._in_exchange():
                await self._complete()

    async def _check_cluster(self) -> None:
        """Raise OutOfMemory if both versions are on a Ray cluster whose nodes are full; an engine would wait long."""
        models = self._former, self._model
        placements = [each.runtime.placement(each.plan.setup.replicas) for each in models]
        if self._former.idle or None in [each.ray_address for each in placements]:
            return
        devices = placements[1].devices(0)
        if not await asyncio.to_thread(has_room, len([each for each in devices if each != CPU])):
            raise OutOfMemory(f"model {self._new.name}: no node of the Ray cluster has room for another engine")

    def _in_exchange(self) -> AbstractContextManager[None]:
        """Prevent other models from taking the memory that the old version leaves to the new one."""
        return self._planner.hold(self._former, self._exchanged)

    def _others(self) -> list[RegisteredModel]:
        """Return the models that may be unloaded to make room."""
        return [each for each in self._registry.all_versions() if each not in (self._old, self._new)]

    async def _take_over(self) -> None:
        """Load the new version in place of the old one; if that fails, undo it."""
        plan, can_roll = self._model.plan, self._can_roll
        need = await asyncio.to_thread(memory_need, plan)
        self._exchanged = need._replace(size=need.size // (max(1, plan.setup.replicas.minimum) if can_roll else 1))
        with self._in_exchange():
            try:
                await (self._roll() if can_roll else self._swap())
            except BaseException as error:
                await asyncio.shield(self._registry.spawn(self._withdraw()))
                if isinstance(error, Exception):
                    await self._restore()
                elif self._new.leaving:  # its operator has removed it; otherwise, the server stops
                    self._registry.spawn(self._restore())
                raise

    @property
    def _can_roll(self) -> bool:
        """Whether the old version has several engines, in whose places those of the new version can run."""
        before, backend = self._former.runtime.replicas, self._model.plan.backend
        if before is None or len(before.members) < 2 or backend is None or not backend.replicates:
            return False
        places = [each.runtime.placement(each.plan.setup.replicas) for each in (self._former, self._model)]
        return places[0].groups == places[1].groups and places[0].replicas.minimum == places[1].replicas.minimum

    async def _roll(self) -> None:
        """Replace all engines except the last one, each after its requests."""
        with self._former.usage.call(), self._model.usage.call():  # so that neither is unloaded as idle
            before = self._former.runtime.replicas
            assert before is not None
            await before.limit_to(len(before.members) - 1)
            await self._model.start(before)
            self._registry.note_loaded(self._new)
            now = self._model.runtime.replicas
            assert now is not None
            while len(before.members) > 1 and len(now.members) < now.count.minimum:
                if len(now.members) >= len(before.members):
                    self._registry.choose_default(self._new)
                await before.limit_to(len(before.members) - 1)
                await now.limit_to(len(now.members) + 1)

    async def _swap(self) -> None:
        """Unload the old version after its calls, and load the new one."""
        gap = self._registry.gaps[self._former] = asyncio.Event()
        try:
            async with self._old.changing:
                refusal = ModelNotReady(f"model {self._former.name} is being replaced")
                await self._old.drain(self._registry.drain_seconds, refusal)
                await asyncio.shield(self._registry.spawn(self._former.become_idle()))
                try:
                    await self._model.start()
                except BaseException:
                    await asyncio.shield(self._registry.spawn(self._new.discard()))
                    raise
            self._registry.note_loaded(self._new)
            self._registry.choose_default(self._new)
        finally:
            self._registry.gaps.pop(self._former, None)
            gap.set()

    async def _withdraw(self) -> None:
        """Unload the new version after its calls; the default is the old one again."""
        was_leaving, self._new.leaving = self._new.leaving, True
        self._registry.publish(self._new.name)
        refusal = ModelNotReady(f"model {self._new.name} could not be replaced")
        await self._new.drain(self._registry.drain_seconds, refusal)
        await self._new.discard()
        self._new.leaving = was_leaving

    async def _restore(self) -> None:
        """Start the engines that the old version has lost."""
        try:
            with self._in_exchange():
                if self._former.idle and self._registry.has(self._old):
                    await self._registry.wake(self._former)
                elif self._former.ready and self._former.runtime.replicas is not None:
                    await self._former.runtime.replicas.limit_to(UNLIMITED)
        except LmiError as error:
            logger.error("model %s: an engine could not be started again: %s", self._old.name, error.message)

    async def _complete(self) -> None:
        """Start the engines that need the devices of the old version's last one."""
        replicas = self._model.runtime.replicas
        if replicas is None or not self._model.ready:
            return
        replicas.former = None
        try:
            await replicas.limit_to(UNLIMITED)
        except LmiError as error:
            self._new.failure = loading_error(error, self._new.name)
            logger.error("model %s has only %d engines: %s", self._new.name, len(replicas.members), error.message)


def _share_state(former: Model, model: Model) -> None:
    """Let clients continue in a new version with the ids that they got from the former one."""
    if former.conversations.limit == model.conversations.limit:
        model.conversations = former.conversations
    if former.sessions is not None and model.sessions is not None:
        model.sessions = former.sessions
