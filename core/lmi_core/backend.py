"""The seam to an inference engine."""

from abc import abstractmethod
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from lmi_core.chats.images import Image, ImagePrompt
from lmi_core.configuration.properties import ModelProperties
from lmi_core.errors import AdapterNotFound, InvalidAdapter, InvalidParameter
from lmi_core.generation import GenerationStep
from lmi_core.parameters import GenerationParameters
from lmi_core.request import ValidRequest
from lmi_core.serving_runtime import RuntimeSetup, ServingRuntime
from lmi_core.tokenizer import Tokenizer

P = TypeVar("P", bound=ModelProperties)


BackendSetup = RuntimeSetup  # what a backend is created from; creating it is cheap and imports no engine


class Backend(ServingRuntime[P]):
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

    max_images: int = 0  # that one prompt may hold, once `start` has returned; 0: the model takes only text

    @property
    def adapters(self) -> Collection[str]:
        """The LoRA adapters that a request can name now."""
        return ()

    async def load_adapter(self, name: str, directory: Path) -> None:
        """Load an adapter in place of any of that name, with which what runs goes on. Raise InvalidAdapter."""
        raise InvalidAdapter(f"the {self.name} backend takes no LoRA adapters")

    async def unload_adapter(self, name: str) -> None:
        """Unload an adapter, with which what runs goes on. Raise AdapterNotFound."""
        raise AdapterNotFound(f"the {self.name} backend takes no LoRA adapters")

    @classmethod
    def unavailable(cls) -> str | None:
        """Return why `option.rolling_batch=auto` cannot choose this backend here; None if it can. Imports no engine."""
        return None

    @classmethod
    def engine_arguments(cls) -> Collection[str]:
        """Return the undeclared `option.*` keys that pass through to the engine. May import it."""
        return ()

    @classmethod
    def known_engine_arguments(cls) -> Collection[str]:
        """Return the names that `engine_arguments` is known to have, without importing the engine."""
        return ()

    @classmethod
    def takes(cls, undeclared: Collection[str]) -> Collection[str]:
        """Return the engine's arguments, where there is an undeclared key that may be one."""
        return cls.engine_arguments() if undeclared else ()

    def image_placeholder(self, number: int) -> str | None:
        """Return what stands for the prompt's image of that number, from 1, in chat templates that take only texts."""
        return None

    async def place_images(
        self, prompt_ids: list[int], images: Sequence[Image], parameters: Mapping[str, Any]
    ) -> ImagePrompt:
        """Read the images, of which there are no more than `max_images`. Raise InvalidParameter.

        `parameters` are the request's, as its dialect read them: nothing of them is checked yet.
        """
        raise InvalidParameter(f"the {self.name} backend takes no images")

    @abstractmethod
    def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        """Yield steps until every sequence has a finish reason; raise LmiError. Closing it aborts the request."""
