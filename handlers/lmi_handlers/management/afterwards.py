"""Work that continues after its request was answered; failures appear among the server's latest errors."""

import asyncio
import logging
from collections.abc import Coroutine
from time import time
from typing import Any

from lmi_core.calls.call import Call
from lmi_core.errors import LmiError
from lmi_core.metrics.recent_errors import RecentError, without_values
from lmi_core.registry.registered_model import RegisteredModel
from lmi_core.served_model import ServedModels
from lmi_handlers.base.statuses import Statuses
from lmi_handlers.management.served import registry_of

logger = logging.getLogger(__name__)

# As in DJLServing and SageMaker, a model that cannot be loaded is an error of the request that registers it.
STATUSES = Statuses(
    model_exists=409,
    adapter_not_found=400,
    rate_limited=400,
    generation_failed=400,
    generation_timeout=400,
    aborted=400,
    formatter_failed=400,
)


async def until_loaded(registered: RegisteredModel) -> None:
    """Wait until a model is loaded or has failed; loading continues if the client disconnects."""
    loading = registered.loading
    if loading is not None:
        await asyncio.wait([loading])


def watch_loading(call: Call, served: ServedModels, registered: RegisteredModel) -> None:
    """Add the failure of an unwatched model to the latest errors."""

    async def watch() -> None:
        await until_loaded(registered)
        if registered.failure is not None:  # the registry has logged it
            _keep(call, served, registered.name, registered.failure)

    registry_of(served).spawn(watch())


def watch_change(call: Call, served: ServedModels, name: str, changing: Coroutine[Any, Any, None]) -> None:
    """Change a model in the background, and log failures."""

    async def change() -> None:
        try:
            await changing
        except LmiError as error:
            logger.error("model %s: the change of request %s failed: %s", name, call.request_id, error.message)
            _keep(call, served, name, error)

    registry_of(served).spawn(change())


def _keep(call: Call, served: ServedModels, name: str, error: LmiError) -> None:
    status, message = STATUSES.of(error), without_values(error.message)
    served.metrics.errors.add(RecentError(0, time(), name, call.request_id, call.path, status, error.kind, message))
