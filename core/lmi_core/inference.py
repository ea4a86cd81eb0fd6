"""A call on a backend that takes tensors, and the seam to how its responses are written."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from lmi_core.errors import LmiError
from lmi_core.tensors import Tensor


class ResponseWriter(ABC):
    """Writes one call's responses as they come; one instance per call."""

    streams: ClassVar[bool]  # whether there may be several; the only one is a whole answer
    content_type: str
    headers: Mapping[str, str] = MappingProxyType({})

    @abstractmethod
    def write(self, response: Mapping[str, Tensor]) -> bytes: ...

    @abstractmethod
    def error(self, error: LmiError) -> bytes:
        """Return the end of a stream that failed once bytes of it were sent."""


@dataclass(frozen=True, slots=True)
class Inference:
    """A call as its dialect understood it: the tensors for the backend, and what writes its responses."""

    inputs: Mapping[str, Tensor]
    writer: ResponseWriter
    timeout: float | None = None  # most seconds for the answer
