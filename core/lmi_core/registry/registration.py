"""The registration of a model, and the interface that turns it into a model."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from lmi_core.configuration.configuration import Setting
from lmi_core.logs.loading_progress import Report
from lmi_core.serving.model import Model


@dataclass(frozen=True, slots=True)
class Registration:
    """A model to load: its name for requests, its location, and keys that override its own properties."""

    name: str
    url: str
    version: str | None = None
    overrides: tuple[Setting, ...] = ()


# Downloads and reads a model, without starting it; on failure or cancellation, it leaves nothing behind. Raises
# ConfigurationError.
ModelReader = Callable[[Registration, Report], Awaitable[Model]]
