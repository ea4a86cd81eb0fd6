"""The seam to an API dialect."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from lmi_core.calls.answer import Answer
from lmi_core.calls.call import Call
from lmi_core.calls.generation import Generation
from lmi_core.calls.route import Route
from lmi_core.calls.served_model import ServedModel
from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.inference import Inference

__all__ = ["Answer", "Call", "Generation", "Handler", "Inference", "Route", "ServedModel"]


class Handler(ABC):
    """Reads one API dialect and chooses the formatter that writes it."""

    name: ClassVar[str]
    routes: ClassVar[tuple[Route, ...]]

    @abstractmethod
    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        """Return the model that a call names outside its body; None where it names none."""

    def model_name_in_body(self, call: Call) -> str | None:
        """Return the model that a call's body names; asked for only where several are served. Raise InvalidPayload."""
        return None

    def receive(self, call: Call, model: ServedModel) -> Call:
        """Return the call as the model's own code and `parse` are to see it. Raise InvalidPayload."""
        return call

    def name_adapters(self, call: Call, model: ServedModel) -> Call:
        """Return the call with what names an adapter in this dialect alone put where any dialect may name it.

        A call for the model function is not asked for it. Raise InvalidPayload.
        """
        return call

    @abstractmethod
    def parse(self, call: Call, model: ServedModel) -> Generation | Inference:
        """Return what the call asks for: an inference only of a model whose backend takes tensors.

        Raise InvalidPayload.
        """

    @abstractmethod
    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        """Return the answer to a call that failed before any of it was sent.

        `model` and `formatter` are None until they are known.
        """

    def relayed(self, answer: Answer) -> Answer:
        """Return what the client gets of a whole answer of the model function."""
        return answer
