"""The interface of an inference engine."""

from abc import abstractmethod
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from lmi_core.configuration.properties import ModelProperties
from lmi_core.errors import AdapterNotFound, ConfigurationError, InvalidAdapter, InvalidParameter
from lmi_core.generation.images import Image, ImagePrompt
from lmi_core.generation.output import GenerationStep
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.generation.request import ValidRequest
from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.serving_runtime import RuntimeSetup, ServingRuntime

P = TypeVar("P", bound=ModelProperties)


BackendSetup = RuntimeSetup  # the data from which a backend is created


class StandIn(NamedTuple):
    """A backend that replaces another one, with clauses for the reason and the effect in a Substitution."""

    backend: "type[Backend[Any]]"
    lacking: str
    instead: str
    devices_lack: bool = False  # the reason, so that it does not apply to engines on other hosts


class Backend(ServingRuntime[P]):
    """An inference engine behind a model, which sees token ids and sampling parameters, never HTTP or a dialect."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()  # other values of `option.rolling_batch` that select this backend
    auto_priority: ClassVar[int | None] = None  # `auto` selects the highest that is available; None means never
    properties_type: ClassVar[type[ModelProperties]]
    parameters_type: ClassVar[type[GenerationParameters]] = GenerationParameters

    replicates: ClassVar[bool] = False  # whether it runs `setup.replicas` engines if the devices allow

    shares_engines: ClassVar[bool] = False  # whether servers on this host can share its engines (`lmi serve --servers`)

    divides_engines: ClassVar[bool] = (
        False  # whether front ends can divide its engines among them (`lmi serve --servers`)
    )

    runs_on_ray: ClassVar[bool] = False  # whether its engines run on the cluster at `setup.ray_address`, if set

    tokenizer: Tokenizer  # set by the time `start` returns
    max_length: int  # context length in tokens, prompt and generated tokens together; set by the time `start` returns
    max_input_length: int | None = None  # the maximum number of prompt tokens, if below the context length
    max_output_length: int | None = None  # the maximum number of generated tokens, if below the context length

    generates: bool = True  # False if the model only makes embeddings; known once `start` has returned
    orders_requests: bool = False  # whether it schedules requests by priority, and so must see all of them
    max_images: int = 0  # the maximum for one prompt, 0 if the model takes only text; known once `start` has returned

    @property
    def adapters(self) -> Collection[str]:
        """The LoRA adapters that a request can currently name."""
        return ()

    async def load_adapter(self, name: str, directory: Path) -> None:
        """Load an adapter, replacing one of that name for new requests; running requests keep the old one.

        Raise InvalidAdapter if it cannot be read or does not fit the model.
        """
        raise InvalidAdapter(f"the {self.name} backend does not support LoRA adapters")

    async def unload_adapter(self, name: str) -> None:
        """Unload an adapter, which running requests keep. Raise AdapterNotFound for an unknown name."""
        raise AdapterNotFound(f"the {self.name} backend does not support LoRA adapters")

    async def pin_adapter(self, name: str, pinned: bool) -> None:
        """Pin a loaded adapter to the device, or unpin it.

        The name stays pinned until it is unloaded, even if another adapter replaces it. Raise AdapterNotFound, or
        InvalidAdapter if it cannot be pinned.
        """
        if pinned:
            raise InvalidAdapter(f"the {self.name} backend cannot pin adapters: leave out `pin`")

    @classmethod
    def unavailable(cls) -> str | None:
        """Return why `option.rolling_batch=auto` cannot select this backend here, or None; imports no engine."""
        return None

    @classmethod
    def stand_in(cls) -> "StandIn | None":
        """Return the replacement if this host cannot run this backend, or None; imports no engine."""
        return None

    @classmethod
    def engine_arguments(cls) -> Collection[str]:
        """Return the undeclared `option.*` keys that pass through to the engine. May import the engine."""
        return ()

    @classmethod
    def known_engine_arguments(cls) -> Collection[str]:
        """Return the names in `engine_arguments` that can be listed without importing the engine."""
        return ()

    @classmethod
    def takes(cls, undeclared: Collection[str]) -> Collection[str]:
        """Return the engine's arguments if undeclared keys are given; otherwise return nothing and import no engine."""
        return cls.engine_arguments() if undeclared else ()

    @classmethod
    def obeys(cls, parameter: str) -> bool:
        """Return whether this parameter of `parameters_type` has an effect in requests."""
        return parameter in cls.parameters_type.model_fields

    def image_placeholder(self, number: int) -> str | None:
        """Return the placeholder text of the prompt's image `number`, from 1, for chat templates without image
        support.
        """
        return None

    async def place_images(
        self, prompt_ids: list[int], images: Sequence[Image], parameters: Mapping[str, Any]
    ) -> ImagePrompt:
        """Read at most `max_images` images and insert their tokens.

        Raise InvalidParameter for more. `parameters` are those of the request as parsed, not yet validated.
        """
        raise InvalidParameter(f"the {self.name} backend does not support images")

    async def finish_start(self) -> None:
        missing = [f"`self.{name}`" for name in ("tokenizer", "max_length") if not hasattr(self, name)]
        if missing:
            raise ConfigurationError(
                f"the {self.name} backend ({type(self).__name__}): `start` must set {' and '.join(missing)}"
            )

    def steps(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        """Return the stream of `generate` as the server reads it."""
        stream: AsyncGenerator[GenerationStep, None] = self.generate(request)
        return stream

    if TYPE_CHECKING:
        generate: Any  # lets a TextBackend, whose `generate` has other arguments, count as a backend
    else:

        @abstractmethod
        def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
            """Yield steps until every sequence has a finish reason; closing the generator aborts the request.

            Raise an LmiError if the request cannot be finished.
            """
