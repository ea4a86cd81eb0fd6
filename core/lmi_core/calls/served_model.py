"""What a dialect sees of the models that are served."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from lmi_core.backend import Backend
from lmi_core.chats.chat_formatter import ChatAnswer
from lmi_core.configuration.formatter_choice import FormatterNames
from lmi_core.configuration.properties import RequestProperties, ServerProperties
from lmi_core.formatter import OutputFormatter
from lmi_core.payloads.tolerance import IgnoredParameters
from lmi_core.serving.model_adapters import ModelAdapters
from lmi_core.serving.running import RunningCalls


class ServedModel(Protocol):
    """A model, as a dialect sees it while it reads a call or writes an error."""

    @property
    def name(self) -> str: ...

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that requests may give the model."""

    @property
    def version(self) -> str | None:
        """The only version that requests may ask for; None is any."""

    @property
    def options(self) -> RequestProperties: ...

    @property
    def server(self) -> ServerProperties: ...

    @property
    def formatters(self) -> FormatterNames:
        """What writes the answers in LMI's schema."""

    @property
    def chat_formatters(self) -> FormatterNames:
        """What writes the answers in LMI's schema for chats."""

    @property
    def chat_template(self) -> str | None:
        """The chat template in place of the tokenizer's own."""

    @property
    def backend(self) -> Backend[Any]:
        """The engine behind the model. Raise ModelNotFound where the model function answers in place of one."""

    @property
    def adapters(self) -> ModelAdapters: ...

    def name_asked(self, name: str | None) -> str:
        """Return the name that a request gave the model; if it gave none, the first that it is served as."""

    def new_formatter(self, name: str) -> OutputFormatter:
        """Create the output formatter of that name. Raise PluginError where no plugin registers it."""

    def new_chat_formatter(self, name: str, answer: ChatAnswer) -> OutputFormatter:
        """Create the formatter of chats by that name, or the one that writes any answer."""


class ManagedModel(ServedModel, Protocol):
    """A model, as a route sees it that generates nothing: one that tells of the model, or changes it."""

    @property
    def created(self) -> int:
        """When the server took the model, in seconds since 1970."""

    @property
    def model_id(self) -> str | None:
        """The value of `option.model_id`."""

    @property
    def max_in_flight(self) -> int:
        """The bound on requests that wait or run."""

    @property
    def running(self) -> RunningCalls: ...

    @property
    def ignored(self) -> IgnoredParameters: ...

    @property
    def runtime_name(self) -> str:
        """The name of the backend, or of what calls the model function."""

    @property
    def generates(self) -> bool:
        """Whether there is a backend; otherwise the model function answers."""

    def admit(self) -> AbstractContextManager[None]:
        """Take a place in the model's queue. Raise Overloaded or ModelNotReady."""

    async def health(self) -> None:
        """Raise ModelNotReady or BackendUnhealthy unless the model can take requests."""


class ServedModels(Protocol):
    """The models of one server, as routes see them that generate nothing."""

    @property
    def models(self) -> Mapping[str, ManagedModel]: ...

    def find(self, name: str | None) -> ManagedModel:
        """Return the model of that name, or the only one. Raise ModelNotFound."""

    def admit(self, model: ManagedModel) -> AbstractContextManager[None]:
        """Take a place in the model's queue, and have the server wait for it. Raise Overloaded or ModelNotReady."""

    async def health(self) -> None:
        """Raise ModelNotReady or BackendUnhealthy unless every model can take requests."""
