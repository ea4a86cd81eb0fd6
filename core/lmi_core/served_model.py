"""The interface of served models for dialects."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from lmi_core.admission.admission import Admission, SequenceCounts, Ticket, Usage
from lmi_core.admission.running import RunningCalls
from lmi_core.backend import Backend
from lmi_core.calls.conversations import Conversations
from lmi_core.calls.sessions import Sessions
from lmi_core.configuration.properties import RequestProperties, ServerProperties
from lmi_core.formatter import ChatAnswer, FormatterNames, OutputFormatter
from lmi_core.metrics.model_metrics import ModelMetrics, RequestStatistics, ServerMetrics
from lmi_core.model_adapters import ModelAdapters
from lmi_core.serving_runtime import ServingRuntime
from lmi_core.tolerance import IgnoredParameters


class ServedModel(Protocol):
    """A model, as seen by a dialect that parses a call or writes an error."""

    @property
    def name(self) -> str: ...

    @property
    def names(self) -> tuple[str, ...]:
        """Every name by which requests may select the model."""

    @property
    def version(self) -> str | None:
        """The only version that requests may name; None allows any."""

    @property
    def fingerprint(self) -> str:
        """An identifier of the model's configuration and this version of the server."""

    @property
    def options(self) -> RequestProperties: ...

    @property
    def server(self) -> ServerProperties: ...

    @property
    def formatters(self) -> FormatterNames:
        """The formatter names of answers in LMI's schema."""

    @property
    def chat_formatters(self) -> FormatterNames:
        """The formatter names of answers in LMI's schema for chats."""

    @property
    def chat_template(self) -> str | None:
        """The chat template that overrides the tokenizer's own, or None."""

    @property
    def backend(self) -> Backend[Any]:
        """The model's backend. Raise ModelNotFound if the model function answers instead."""

    @property
    def adapters(self) -> ModelAdapters: ...

    @property
    def adapter_folders(self) -> Mapping[str, Path | str]:
        """The source of each adapter that a request can name now, even while the model is idle."""

    @property
    def pinned_adapters(self) -> Collection[str]:
        """The pinned adapters, which are never evicted."""

    @property
    def sessions(self) -> Sessions | None:
        """The open sessions of clients; None if option.enable_stateful_sessions turns them off."""

    @property
    def adapter_names(self) -> tuple[str, ...]:
        """The adapters that requests may name instead of the model: a backend's, except for the model's own names."""

    @property
    def conversations(self) -> Conversations:
        """The stored answers that later requests may continue."""

    def name_asked(self, name: str | None) -> str:
        """Return the name of the model or adapter in a request, or the first served name by default."""

    def new_formatter(self, name: str) -> OutputFormatter:
        """Create the output formatter of that name. Raise PluginError if no plugin registers it."""

    def new_chat_formatter(self, name: str, answer: ChatAnswer) -> OutputFormatter:
        """Create the chat formatter of that name or, without one, the output formatter."""


class ManagedModel(ServedModel, Protocol):
    """A model, as seen by routes that describe or change it rather than generate."""

    @property
    def created(self) -> int:
        """The time when the server added the model, in seconds since 1970."""

    @property
    def model_id(self) -> str | None:
        """The value of `option.model_id`, without secrets in a URL."""

    @property
    def files(self) -> Path | None:
        """The folder on this host that contains the model's weights, when loaded; None without one."""

    @property
    def running(self) -> RunningCalls: ...

    @property
    def statistics(self) -> RequestStatistics: ...

    @property
    def metrics(self) -> ModelMetrics: ...

    @property
    def ready(self) -> bool:
        """Whether the model is loaded."""

    @property
    def admission(self) -> Admission:
        """The bounded queue, with a place for each sequence of a request."""

    @property
    def usage(self) -> Usage: ...

    @property
    def sequence_counts(self) -> SequenceCounts:
        """The sequences in the queue now; may be counted in any thread."""

    @property
    def runtime(self) -> ServingRuntime[Any]: ...

    @property
    def ignored(self) -> IgnoredParameters: ...

    @property
    def runtime_name(self) -> str:
        """The name of the backend, or of the runtime that calls the model function."""

    @property
    def generates(self) -> bool:
        """Whether a backend generates; otherwise the model function answers."""

    def check_place(self) -> None:
        """Raise Overloaded if the model's queue is full, or ModelNotReady; do not take a place."""

    def admit(self) -> Ticket:
        """Take a place in the model's queue. Raise Overloaded if it is full, or ModelNotReady."""

    async def health(self) -> None:
        """Raise ModelNotReady or BackendUnhealthy unless the model can accept requests."""


class ServedModels(Protocol):
    """The models of a server, as seen by routes that describe or change them."""

    @property
    def metrics(self) -> ServerMetrics:
        """The counts of the whole server."""

    def all_models(self) -> Iterator[ManagedModel]:
        """Yield every version of every model, including those being loaded or removed."""

    @property
    def models(self) -> Mapping[str, ManagedModel]: ...

    def find(self, name: str | None) -> ManagedModel:
        """Return the model with that name or, without one, the only model, now or at the start.

        Raise ModelNotFound if there is none.
        """

    def find_with_adapters(self, name: str | None) -> ManagedModel:
        """Return the model with that name, or with an adapter of that name. Raise ModelNotFound if there is none."""

    def version_asked(self, name: str | None) -> ManagedModel:
        """Return the only model, in the version that a body asks for. Raise ModelNotFound if there is none."""

    def versions(self, name: str) -> Sequence[ManagedModel]:
        """Return the served versions of the model with that name, the default first."""

    def admit(self, model: ManagedModel) -> AbstractContextManager[Ticket]:
        """Take a place in the model's queue; shutdown waits for it. Raise Overloaded or ModelNotReady."""

    async def bridge(self, model: ManagedModel) -> bool:
        """Wait in a model's queue if its only engine is being replaced, and return whether to look the model up again.

        Raise Overloaded if the queue is full.
        """

    async def wake(self, model: Any) -> None:
        """Load an idle model for an admitted call. Raise ModelNotReady or OutOfMemory."""

    async def health(self) -> None:
        """Raise ModelNotReady or BackendUnhealthy unless every model can accept requests."""
