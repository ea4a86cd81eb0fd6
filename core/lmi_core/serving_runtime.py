"""The seam to what runs a model, which a backend and the model function both fit."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from lmi_core.configuration.properties import ModelProperties
from lmi_core.remote.location import RemoteModel, is_s3

P = TypeVar("P", bound=ModelProperties)


@dataclass(frozen=True, slots=True)
class RuntimeSetup(Generic[P]):
    """What a runtime is created from."""

    directory: Path
    properties: P
    engine_arguments: Mapping[str, str]  # the undeclared `option.*` keys that the engine takes, as written
    retry_threshold: int  # how often a crashed engine is started again

    def with_folders(self, folders: Mapping[str, Path]) -> Self:
        """Return the setup with folders in place of what those options named; undeclared ones are engine arguments."""
        values = {option: str(folder) for option, folder in folders.items()}
        declared = {name: value for name, value in values.items() if name in type(self.properties).model_fields}
        passed = {name: value for name, value in values.items() if name not in declared}
        properties = self.properties.model_copy(update=declared)
        changes: dict[str, Any] = {"properties": properties, "engine_arguments": {**self.engine_arguments, **passed}}
        return replace(self, **changes)


class ServingRuntime(ABC, Generic[P]):
    """What runs a model: a backend, which generates for any dialect, or the model function, which answers itself.

    Creating one is cheap and imports no engine; `start` does the work.
    """

    name: ClassVar[str]
    properties_type: ClassVar[type[ModelProperties]]

    # What the directory asks for and gets otherwise, on this machine or by this engine; whole once it is created.
    warnings: Sequence[str] = ()

    def __init__(self, setup: RuntimeSetup[P]) -> None:
        self.setup = setup

    @property
    def adapters(self) -> Collection[str]:
        """The adapters that a request can name now, as far as the runtime applies them."""
        return ()

    @classmethod
    def downloads(cls, setup: RuntimeSetup[P]) -> Mapping[str, RemoteModel]:
        """Return what is copied to this host before `start`, by the option that names it, without its prefix.

        The runtime that is started is created from the setup with the copies' folders in their place.
        """
        model_id = setup.properties.model_id
        return {"model_id": RemoteModel(model_id)} if model_id is not None and is_s3(model_id) else {}

    @classmethod
    @abstractmethod
    def takes(cls, undeclared: Collection[str]) -> Collection[str]:
        """Return the names of undeclared `option.*` keys that pass through, given those that are written."""

    @abstractmethod
    async def start(self) -> None:
        """Load the model; raise ConfigurationError when the directory is at fault."""

    @abstractmethod
    async def stop(self) -> None:
        """End every process and free what was held. Safe to call at any time, also twice."""

    @abstractmethod
    async def health(self) -> None:
        """Raise BackendUnhealthy unless requests can be taken."""

    async def given_up(self) -> str:
        """Wait until the runtime has failed for good, if it can, and return why."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never
