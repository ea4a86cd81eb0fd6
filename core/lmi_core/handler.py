"""The interface of an API dialect."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from lmi_core.calls.answer import Answer
from lmi_core.calls.answer_form import AnswerForm
from lmi_core.calls.call import Call
from lmi_core.embedding_call import EmbeddingCall
from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.request import GenerationRequest
from lmi_core.inference import Inference
from lmi_core.route import Route
from lmi_core.served_model import ServedModel, ServedModels

__all__ = [
    "Answer",
    "AnswerForm",
    "Call",
    "EmbeddingCall",
    "Generation",
    "Handler",
    "Inference",
    "Route",
    "ServedModel",
]


@dataclass(frozen=True, slots=True)
class Generation:
    """A parsed call for text: the prompts, and the formatter of the answer."""

    requests: tuple[GenerationRequest, ...]
    formatter: OutputFormatter
    timeout: float | None = None  # seconds allowed for the answer
    ignored: tuple[str, ...] = ()  # names of unknown fields, including nested ones, that `parse` dropped
    request_id: str | None = None  # replaces the call's id, if its body sets one; None leaves it unchanged
    headers: Mapping[str, str] = field(default_factory=dict)  # headers of the response, whatever writes its body
    strict: bool = False  # reject unknown parameters regardless of option.strict_parameters


class Handler(ABC):
    """A reader of one API dialect, which also selects the formatter of its answers."""

    name: ClassVar[str]
    summary: ClassVar[str] = ""  # for the OpenAPI document: the owner of the API
    routes: ClassVar[tuple[Route, ...]]
    reads_embeddings: ClassVar[bool] = False  # whether `parse` also takes calls for models that do not generate
    errors: ClassVar[tuple[AnswerForm, ...]] = ()  # the forms of errors on all routes, for the OpenAPI document
    adapters_are_models: ClassVar[bool] = False  # whether a body may name an adapter in place of its model

    @abstractmethod
    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        """Return the model named in the path or the headers, or None."""

    def model_name_in_body(self, call: Call) -> str | None:
        """Return the model named in the body; called only if several models or versions are served.

        Raise InvalidPayload if the body cannot be read.
        """
        return None

    def served_name(self, name: str, models: ServedModels) -> str:
        """Return the served name of a model or adapter named in a body; by default the same.

        To word the message for an unknown name as the dialect does, raise ModelNotFound here.
        """
        return name

    def receive(self, call: Call, model: ServedModel) -> Call:
        """Return the call for the model's own code and `parse`. Raise InvalidPayload if it cannot be read."""
        return call

    def name_adapters(self, call: Call, model: ServedModel) -> Call:
        """Return the call with adapters named in the form common to all dialects, instead of this dialect's own.

        Not called if the model function answers. Raise InvalidPayload for invalid names of adapters.
        """
        return call

    @abstractmethod
    def parse(self, call: Call, model: ServedModel) -> Generation | Inference | EmbeddingCall | Answer:
        """Return the parsed call, or an Answer to a call that generates nothing.

        An Inference is only for models whose backend takes tensors. Long bodies are parsed outside the thread of the
        event loop. Raise InvalidPayload if the call cannot be parsed.
        """

    @abstractmethod
    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        """Return the answer to a call that failed before anything was sent.

        `model` and `formatter` are None until known.
        """

    def identified(self, answer: Answer, request_id: str) -> Answer:
        """Return an error with the request's id, if this dialect has a place for it besides the header."""
        return answer

    def relayed(self, answer: Answer) -> Answer:
        """Return the client's form of a whole answer of the model function."""
        return answer
