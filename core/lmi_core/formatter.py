"""The seam to how an answer is written."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

from lmi_core.errors import InvalidParameter, LmiError
from lmi_core.generation import GenerationOutput
from lmi_core.parameters import GenerationParameters
from lmi_core.request import ValidRequest
from lmi_core.script.formatters.decorators import output_formatter

__all__ = ["GenerationOutput", "OutputFormatter", "output_formatter"]


class OutputFormatter(ABC):
    """Writes one call's output as it is generated; one instance per call. What it returns is final.

    What `format` returns at each generation step is written to the client at once, each of a list's events by itself.
    A formatter of whole answers returns b"" until `output.finished`.
    """

    name: ClassVar[str]
    one_sequence: ClassVar[bool] = False  # whether it cannot tell several sequences of a prompt apart

    # Both may be set by an instance, up to and in the call that returns its first bytes.
    content_type: str
    headers: Mapping[str, str] = MappingProxyType({})

    @abstractmethod
    def format(self, output: GenerationOutput) -> bytes | list[bytes]:
        """Return what is to be sent at a generation step, the latest being `output.step`."""

    def reads_log_probs(self, parameters: GenerationParameters) -> bool:
        """Return whether log probs of generated tokens are read; they are None where nobody reads them."""
        return True

    @abstractmethod
    def error(self, error: LmiError) -> bytes | list[bytes]:
        """Return the end of an answer that failed, also when bytes of it were already sent."""


def check_sequences(formatter: OutputFormatter, requests: Iterable[ValidRequest]) -> None:
    """Raise InvalidParameter where more sequences are asked for than the formatter can write."""
    for request in requests:
        count = request.parameters.num_sequences
        if formatter.one_sequence and count > 1:
            raise InvalidParameter(
                f"`n`, `best_of` and `num_beams` must be 1 in a stream ({formatter.name}). Given: {count}"
            )


def without_unread(formatter: OutputFormatter, requests: Iterable[ValidRequest]) -> list[ValidRequest]:
    """Return the requests without log probs that nobody reads; these also tell which of several sequences is best."""
    return [
        request
        if request.parameters.num_sequences > 1 or formatter.reads_log_probs(request.parameters)
        else replace(request, log_probs=False)
        for request in requests
    ]


def joined(data: bytes | list[bytes]) -> bytes:
    """Return what a formatter returned as one body."""
    return data if isinstance(data, bytes) else b"".join(data)
