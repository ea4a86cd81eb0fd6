"""Calls on a backend that takes tensors, and the interface of the writers of their responses."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from lmi_core.errors import LmiError
from lmi_core.generation.tensors import Tensor


class ResponseWriter(ABC):
    """A writer of one call's responses as they arrive; one instance per call."""

    streams: ClassVar[bool]  # whether several responses may come; otherwise the only one is the whole answer
    errors_are_events: ClassVar[bool] = False  # as `OutputFormatter.errors_are_events`
    is_settled: bool = True  # as `OutputFormatter.is_settled`
    content_type: str
    headers: Mapping[str, str] = MappingProxyType({})

    @abstractmethod
    def write(self, response: Mapping[str, Tensor]) -> bytes: ...

    @abstractmethod
    def error(self, error: LmiError) -> bytes:
        """Return the end of a stream that failed after bytes of it were sent."""


@dataclass(frozen=True, slots=True)
class Inference:
    """A parsed call on tensors: the backend's inputs, and the writer of its responses."""

    inputs: Mapping[str, Tensor]
    writer: ResponseWriter
    timeout: float | None = None  # seconds allowed for the answer
    ignored: tuple[str, ...] = ()  # names of the unknown parameters that `parse` dropped
