"""The registration of a model, and the seam by which it becomes one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lmi_core.configuration.configuration import Given
from lmi_core.logs.loading_progress import Report
from lmi_core.serving.model import Model


@dataclass(frozen=True, slots=True)
class Registration:
    """A model to be loaded: the name for requests, where it lies, and keys that count before its own properties."""

    name: str
    url: str
    version: str | None = None
    overrides: tuple[Given, ...] = ()


def nothing() -> None:
    """Release nothing."""


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model that was read and is not started, and the release of what only its registration has made."""

    model: Model
    release: Callable[[], None] = nothing


class ModelReader(Protocol):
    """The way from a registration to a model that is not started."""

    async def __call__(self, registration: Registration, report: Report) -> PreparedModel:
        """Fetch and read the model. Raise ConfigurationError, with nothing left behind; likewise when cancelled."""
