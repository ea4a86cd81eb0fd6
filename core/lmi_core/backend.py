"""The interface of an inference engine."""

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


BackendSetup = RuntimeSetup  # what a backend is created from


class Backend(ServingRuntime[P]):
    """An inference engine behind a model, which sees token ids and sampling parameters, never HTTP or a dialect."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()  # other values of `option.rolling_batch` that select this backend
    auto_priority: ClassVar[int | None] = None  # `auto` selects the highest that is available; None: never
    properties_type: ClassVar[type[ModelProperties]]
    parameters_type: ClassVar[type[GenerationParameters]] = GenerationParameters

    # Both are set by the time `start` returns.
    tokenizer: Tokenizer
    max_length: int  # context length in tokens: the prompt and what is generated from it

    # Set where the backend's limits are below the context length.
    max_input_length: int | None = None  # prompt tokens
    max_output_length: int | None = None  # generated tokens

    generates: bool = True  # known once `start` has returned; False: the model makes embeddings, and no text
    max_images: int = 0  # images in one prompt, known once `start` has returned; 0: the model takes only text

    @property
    def adapters(self) -> Collection[str]:
        """The LoRA adapters that a request can name now."""
        return ()

    async def load_adapter(self, name: str, directory: Path) -> None:
        """Load an adapter, replacing one of that name for new requests; running ones keep the old one.

        Raise InvalidAdapter where it cannot be read or does not fit the model.
        """
        raise InvalidAdapter(f"the {self.name} backend does not support LoRA adapters")

    async def unload_adapter(self, name: str) -> None:
        """Unload an adapter, which running requests keep. Raise AdapterNotFound for an unknown name."""
        raise AdapterNotFound(f"the {self.name} backend does not support LoRA adapters")

    @classmethod
    def unavailable(cls) -> str | None:
        """Return why `option.rolling_batch=auto` cannot select this backend here, or None; imports no engine."""
        return None

    @classmethod
    def engine_arguments(cls) -> Collection[str]:
        """Return the undeclared `option.*` keys that pass through to the engine, which may be imported for it."""
        return ()

    @classmethod
    def known_engine_arguments(cls) -> Collection[str]:
        """Return the names of `engine_arguments` that are known without importing the engine."""
        return ()

    @classmethod
    def takes(cls, undeclared: Collection[str]) -> Collection[str]:
        """Return the engine's arguments if any undeclared key is given; otherwise nothing, and import no engine."""
        return cls.engine_arguments() if undeclared else ()

    def image_placeholder(self, number: int) -> str | None:
        """Return the text for the prompt's image `number`, counted from 1, for chat templates that take only texts."""
        return None

    async def place_images(
        self, prompt_ids: list[int], images: Sequence[Image], parameters: Mapping[str, Any]
    ) -> ImagePrompt:
        """Read at most `max_images` images and insert their tokens. Raise InvalidParameter for others.

        `parameters` are the request's, as its dialect read them: nothing of them is checked yet.
        """
        raise InvalidParameter(f"the {self.name} backend does not support images")

    @abstractmethod
    def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        """Yield steps until every sequence has a finish reason; closing the generator aborts the request.

        Raise an LmiError where the request cannot be finished.
        """
