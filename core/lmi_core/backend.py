"""The seam to an inference engine."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from lmi_core.errors import AdapterNotFound, InvalidAdapter
from lmi_core.generation import GenerationStep
from lmi_core.parameters import GenerationParameters
from lmi_core.properties import ModelProperties
from lmi_core.request import ValidRequest
from lmi_core.tokenizer import Tokenizer

P = TypeVar("P", bound=ModelProperties)


@dataclass(frozen=True, slots=True)
class BackendSetup(Generic[P]):
    """What a backend is created from. Creating it is cheap and imports no engine; `start` does the work."""

    directory: Path
    properties: P
    engine_arguments: Mapping[str, str]  # the undeclared `option.*` keys that the engine takes, as written
    retry_threshold: int  # how often a crashed engine is started again


class Backend(ABC, Generic[P]):
    """An inference engine behind a model. Sees token ids and sampling parameters; never HTTP, never a dialect."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()  # other values of `option.rolling_batch` that mean this backend
    auto_priority: ClassVar[int | None] = None  # `auto` takes the highest that is available; None: never
    properties_type: ClassVar[type[ModelProperties]]
    parameters_type: ClassVar[type[GenerationParameters]] = GenerationParameters

    # Both are set by the time `start` returns.
    tokenizer: Tokenizer
    max_length: int  # of a prompt and what is generated from it, in tokens

    def __init__(self, setup: BackendSetup[P]) -> None:
        self.setup = setup

    @property
    def adapters(self) -> Collection[str]:
        """The LoRA adapters that a request can name now."""
        return ()

    async def load_adapter(self, name: str, directory: Path) -> None:
        """In place of one of that name; what runs with that one goes on. Raises InvalidAdapter."""
        raise InvalidAdapter(f"the {self.name} backend takes no LoRA adapters")

    async def unload_adapter(self, name: str) -> None:
        """What runs with it goes on. Raises AdapterNotFound."""
        raise AdapterNotFound(f"the {self.name} backend takes no LoRA adapters")

    @classmethod
    def unavailable(cls) -> str | None:
        """Why `option.rolling_batch=auto` cannot choose this backend here; None if it can. Imports no engine."""
        return None

    @classmethod
    def engine_arguments(cls) -> Collection[str]:
        """The undeclared `option.*` keys that pass through to the engine. May import it."""
        return ()

    @abstractmethod
    async def start(self) -> None:
        """Load the model; raises ConfigurationError when the directory is at fault."""

    @abstractmethod
    async def stop(self) -> None:
        """End every process and free what was held. Safe to call at any time, also twice."""

    @abstractmethod
    async def health(self) -> None:
        """Raises BackendUnhealthy."""

    @abstractmethod
    def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        """Steps until every sequence has a finish reason; raises LmiError. Closing it aborts the request."""
