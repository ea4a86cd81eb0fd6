"""The seam to an inference engine."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from lmi_core.chats.images import Image, ImagePrompt
from lmi_core.configuration.properties import ModelProperties
from lmi_core.errors import AdapterNotFound, InvalidAdapter, InvalidParameter
from lmi_core.generation import GenerationStep
from lmi_core.parameters import GenerationParameters
from lmi_core.remote.location import RemoteModel, is_s3
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

    def with_folders(self, folders: Mapping[str, Path]) -> Self:
        """Return the setup with folders in place of what those options named; undeclared ones are engine arguments."""
        values = {option: str(folder) for option, folder in folders.items()}
        declared = {name: value for name, value in values.items() if name in type(self.properties).model_fields}
        passed = {name: value for name, value in values.items() if name not in declared}
        properties = self.properties.model_copy(update=declared)
        changes: dict[str, Any] = {"properties": properties, "engine_arguments": {**self.engine_arguments, **passed}}
        return replace(self, **changes)


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

    # Where a backend takes less than its context holds.
    max_input_length: int | None = None  # tokens of a prompt
    max_output_length: int | None = None  # tokens to generate

    # What the directory asks for and gets otherwise, on this machine or by this engine; whole once it is created.
    warnings: Sequence[str] = ()

    max_images: int = 0  # that one prompt may hold, once `start` has returned; 0: the model takes only text

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
    def downloads(cls, setup: BackendSetup[P]) -> Mapping[str, RemoteModel]:
        """What is copied to this host before `start`, by the option that names it, without its prefix.

        The backend that is started is created from the setup with the copies' folders in their place.
        """
        model_id = setup.properties.model_id
        return {"model_id": RemoteModel(model_id)} if model_id is not None and is_s3(model_id) else {}

    @classmethod
    def engine_arguments(cls) -> Collection[str]:
        """The undeclared `option.*` keys that pass through to the engine. May import it."""
        return ()

    @classmethod
    def known_engine_arguments(cls) -> Collection[str]:
        """The names that `engine_arguments` is known to have, told without importing the engine."""
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

    async def given_up(self) -> str:
        """Waits until the engine has failed for good, if it can, and says why."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    def image_placeholder(self, number: int) -> str | None:
        """What stands for the prompt's image of that number, from 1, where the chat template takes only texts."""
        return None

    async def place_images(self, prompt_ids: list[int], images: Sequence[Image]) -> ImagePrompt:
        """Reads the images, of which there are no more than `max_images`. Raises InvalidParameter."""
        raise InvalidParameter(f"the {self.name} backend takes no images")

    @abstractmethod
    def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        """Steps until every sequence has a finish reason; raises LmiError. Closing it aborts the request."""
