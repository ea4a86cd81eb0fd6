"""One engine of a model, of which there may be several."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection

from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.workers.conversation import Place
from lmi_core.workers.isolation import Isolation
from lmi_core.workers.supervisor import Restarts


class Replica(ABC):
    """An engine with the whole model, as the requests in it see it."""

    def __init__(self) -> None:
        self.isolation = Isolation()
        self.on_death: Callable[[], None] = lambda: None

    def record_death(self) -> None:
        """Record that the engine has lost its requests; called before the requests get the error."""
        self.isolation.clear()
        self.on_death()

    @property
    @abstractmethod
    def restarts(self) -> Restarts:
        """The restarts of the engine's process."""

    @property
    @abstractmethod
    def is_available(self) -> bool:
        """Whether the engine accepts requests now."""

    @property
    def figures(self) -> EngineFigures:
        """The engine's last reported figures, including the counts from before its restarts."""
        return EngineFigures(restarts=self.restarts.count)

    @property
    def place(self) -> Place | None:
        """The engine's process, if it is on another machine."""
        return None

    @property
    @abstractmethod
    def process_ids(self) -> Collection[int]:
        """The engine's processes on this machine; none while it is being restarted."""

    @abstractmethod
    async def available(self) -> None:
        """Wait until the engine accepts requests. Raise BackendUnhealthy if it is no longer restarted."""

    @abstractmethod
    def check_health(self) -> None:
        """Raise BackendUnhealthy while it does not accept requests."""

    @abstractmethod
    async def start(self) -> None:
        """Load the model. Raise ConfigurationError if that fails."""

    @abstractmethod
    async def stop(self) -> None:
        """End the engine, and its requests with EngineLost. Safe to call repeatedly."""
