"""The interface of what runs a model, common to backends and the model function."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from lmi_core.configuration.properties import ModelProperties
from lmi_core.remote.location import RemoteModel, is_s3

P = TypeVar("P", bound=ModelProperties)


@dataclass(frozen=True, slots=True)
class RuntimeSetup(Generic[P]):
    """The settings that a runtime is created from."""

    directory: Path
    properties: P
    engine_arguments: Mapping[str, str]  # undeclared `option.*` keys for the engine, as raw text
    retry_threshold: int  # how many times in a row a crashed engine is restarted

    def with_folders(self, folders: Mapping[str, Path]) -> Self:
        """Return the setup with each named option set to its folder; undeclared options are engine arguments."""
        values = {option: str(folder) for option, folder in folders.items()}
        declared = {name: value for name, value in values.items() if name in type(self.properties).model_fields}
        passed = {name: value for name, value in values.items() if name not in declared}
        properties = self.properties.model_copy(update=declared)
        changes: dict[str, Any] = {"properties": properties, "engine_arguments": {**self.engine_arguments, **passed}}
        return replace(self, **changes)


class ServingRuntime(ABC, Generic[P]):
    """A runner of a model: a backend, which generates for any dialect, or the model function, which answers itself.

    Creating one is cheap and imports no engine; `start` does the work.
    """

    name: ClassVar[str]
    properties_type: ClassVar[type[ModelProperties]]

    # What this host or this engine does otherwise than the model directory asks; complete once created.
    warnings: Sequence[str] = ()

    def __init__(self, setup: RuntimeSetup[P]) -> None:
        self.setup = setup

    @property
    def adapters(self) -> Collection[str]:
        """The names of the adapters that a request can select now."""
        return ()

    @classmethod
    def downloads(cls, setup: RuntimeSetup[P]) -> Mapping[str, RemoteModel]:
        """Return the remote models to copy to this host before `start`, by the option that names each, without prefix.

        The runtime that is then started is created from the setup with the folders of the copies.
        """
        model_id = setup.properties.model_id
        return {"model_id": RemoteModel(model_id)} if model_id is not None and is_s3(model_id) else {}

    @classmethod
    def inspect(cls, setup: RuntimeSetup[P]) -> Iterable[str]:
        """Return why `start` would fail, as far as the files on this host tell without loading weights.

        Each fault is a sentence that names the file. Takes seconds: libraries of the engine may be imported.
        """
        return ()

    @classmethod
    @abstractmethod
    def takes(cls, undeclared: Collection[str]) -> Collection[str]:
        """Return the undeclared `option.*` keys that pass through, possibly more than those given."""

    @abstractmethod
    async def start(self) -> None:
        """Load the model. Raise ConfigurationError where the model directory is at fault."""

    @abstractmethod
    async def stop(self) -> None:
        """End every process and free its resources. Safe to call at any time, also repeatedly."""

    @abstractmethod
    async def health(self) -> None:
        """Raise BackendUnhealthy unless the runtime can take requests."""

    async def given_up(self) -> str:
        """Wait until the runtime has failed for good, and return why; a runtime that never does waits forever."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never
