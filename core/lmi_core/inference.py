"""Calls on a backend that takes tensors, and the interface of the writers of their responses."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lmi_core.formatter import AnswerWriter
from lmi_core.generation.tensors import Tensor


class ResponseWriter(AnswerWriter):
    """A writer of one call's responses as they arrive; one instance per call."""

    streams: ClassVar[bool]  # whether there may be several responses; otherwise, the only one is the whole answer

    @abstractmethod
    def write(self, response: Mapping[str, Tensor]) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Inference:
    """A parsed call on tensors: the backend's inputs, and the writer of its responses."""

    inputs: Mapping[str, Tensor]
    writer: ResponseWriter
    timeout: float | None = None  # seconds allowed for the answer
    ignored: tuple[str, ...] = ()  # names of the unknown parameters that `parse` dropped
