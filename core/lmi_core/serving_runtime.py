"""The interface of a model's runtime, common to backends and the model function."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from lmi_core.configuration.java_properties import parse
from lmi_core.configuration.location import GGUF, RemoteModel
from lmi_core.configuration.model_directory import PROPERTIES_FILE
from lmi_core.configuration.model_source import copied_source
from lmi_core.configuration.properties import ModelProperties
from lmi_core.host.substitution import Substitution
from lmi_core.logs.loading_progress import LoadingProgress
from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.remote.held_copies import is_copy
from lmi_core.workers.placement import Placement
from lmi_core.workers.replicas import ONE, ReplicaCount, Replicas
from lmi_core.workers.supervisor import LOADING_TIMEOUT

if TYPE_CHECKING:
    from prometheus_client import Metric

P = TypeVar("P", bound=ModelProperties)


@dataclass(frozen=True, slots=True)
class RuntimeSetup(Generic[P]):
    """The settings that a runtime is created from."""

    directory: Path
    properties: P
    engine_arguments: Mapping[str, str]  # undeclared `option.*` keys for the engine, as raw text
    retry_threshold: int  # how many consecutive times a crashed engine is restarted
    loading_timeout: float = LOADING_TIMEOUT  # seconds for each load of the model
    replicas: ReplicaCount = ONE  # the number for each group of devices that the model needs
    devices: tuple[str, ...] = ()  # `cpu`, or GPU numbers; empty means all available ones
    ray_address: str | None = None  # the cluster whose nodes run the engines; None means this host
    ray_shared: bool = False  # whether other servers that use the cluster share the engines
    max_idle_time: float = 60  # seconds without requests after which a replica beyond the minimum ends

    def with_folders(self, folders: Mapping[str, Path]) -> Self:
        """Return the setup with the named options set to folders; undeclared options are engine arguments.

        A model of the hub without a directory is quantized like the GGUF file from which its folder was converted.
        """
        values = {option: str(folder) for option, folder in folders.items()}
        if "model_id" in folders and not self.directory.exists() and "quantize" not in self.properties.model_fields_set:
            values |= _quantization(folders["model_id"])
        declared = {name: value for name, value in values.items() if name in type(self.properties).model_fields}
        passed = {name: value for name, value in values.items() if name not in declared}
        properties = self.properties.model_copy(update=declared)
        changes: dict[str, Any] = {"properties": properties, "engine_arguments": {**self.engine_arguments, **passed}}
        return replace(self, **changes)


def _quantization(folder: Path) -> dict[str, str]:
    file = folder / PROPERTIES_FILE
    entries = parse(file.read_text("utf-8")) if is_copy(folder) and file.is_file() else []
    return {entry.key.removeprefix("option."): entry.value for entry in entries if entry.key == "option.quantize"}


class Note(str):
    """A note by an inspection about how a model would be served; not a reason against serving it."""


class ServingRuntime(ABC, Generic[P]):
    """A model's runtime: a backend, which generates for any dialect, or the model function, which answers requests
    itself. Creation is cheap and imports no engine; `start` does the work.
    """

    name: ClassVar[str]
    properties_type: ClassVar[type[ModelProperties]]
    replicas: "Replicas[Any] | None" = None  # the engines, if the backend can have several
    code_options: ClassVar[frozenset[str]] = frozenset()  # engine arguments that name code for the engine to run

    # How this engine deviates from the model directory; complete once the runtime is created.
    warnings: Sequence[str] = ()
    # Warnings that apply only to this host, and are not in `warnings`; complete once the runtime is created.
    substitutions: Sequence[Substitution] = ()

    def __init__(self, setup: RuntimeSetup[P]) -> None:
        self.setup = setup
        self.progress = LoadingProgress()  # the progress of `start`, before which the model sets its own
        self.former: Replicas[Any] | None = None  # the engines of the version to replace, for `Replicas.start`

    @property
    def adapters(self) -> Collection[str]:
        """The names of the adapters that a request can select now."""
        return ()

    @classmethod
    def downloads(cls, setup: RuntimeSetup[P]) -> Mapping[str, RemoteModel]:
        """Return the remote models to copy to this host before `start`, by option without prefix.

        GGUF files are excluded: they would be converted, but a model's code or llama.cpp reads them directly.
        The started runtime is created from a setup with the folders of the copies.
        """
        model_id = setup.properties.model_id
        source = None if model_id is None else copied_source(setup.directory, model_id)
        return {} if source is None or source.lower().endswith(GGUF) else {"model_id": RemoteModel(source)}

    @classmethod
    def inspect(cls, setup: RuntimeSetup[P]) -> Iterable[str]:
        """Return the reasons, visible in the files on this host, why `start` would fail, without loading weights.

        Each is a sentence that names the file. A `Note` is not such a reason. This may import the engine's libraries,
        which takes seconds.
        """
        return ()

    @classmethod
    @abstractmethod
    def takes(cls, undeclared: Collection[str]) -> Collection[str]:
        """Return the undeclared `option.*` keys that pass through, possibly more than those given."""

    @abstractmethod
    async def start(self) -> None:
        """Load the model. Raise ConfigurationError if the model directory is at fault."""

    async def finish_start(self) -> None:
        """Check and complete the state after `start`. Raise ConfigurationError with sentences for the code's author."""

    @abstractmethod
    async def stop(self) -> None:
        """End every process and free its resources. Safe to call repeatedly, at any time."""

    @abstractmethod
    async def health(self) -> None:
        """Raise BackendUnhealthy unless the runtime can accept requests."""

    def placement(self, of_group: ReplicaCount) -> Placement:
        """Return where the replicas run: `replicas` of them on each group of devices that holds the whole model."""
        return Placement(replicas=Placement().total(of_group))

    def figures(self) -> EngineFigures:
        """Return the current figures of the engine, immediately and in any thread."""
        return EngineFigures() if self.replicas is None else self.replicas.figures

    def process_ids(self) -> Collection[int]:
        """Return the engine's current processes, immediately and in any thread; empty if it runs in the server's
        process.
        """
        return () if self.replicas is None else self.replicas.process_ids

    def metrics(self) -> "Iterable[Metric]":
        """Return the engine's own Prometheus metric families, labelled with the model's name."""
        return ()

    async def given_up(self) -> str:
        """Wait until the runtime has failed permanently, and return the reason; never returns without `replicas`."""
        if self.replicas is not None:
            return await self.replicas.wait_given_up()
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never
