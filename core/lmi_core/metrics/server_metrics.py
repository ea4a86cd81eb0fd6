"""The counts of the whole server, independent of models."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from lmi_core.metrics.model_metrics import ModelMetrics
from lmi_core.metrics.recent_errors import RecentErrors
from lmi_core.metrics.request_record import RequestRecord

UNEXPECTED = "internal"
REFUSALS = ("overloaded", "model_not_ready")


class EndedRequest(NamedTuple):
    """A finished request, for further records about it."""

    record: RequestRecord
    path: str
    status: int
    reason: str
    seconds: float
    trace: Mapping[str, str] | None  # the headers of its trace


class ServerMetrics:
    """Counts of all requests, and of requests without a model."""

    def __init__(self) -> None:
        self.without_model = ModelMetrics()
        self.observers: list[Callable[[EndedRequest], None]] = []  # called when a request has ended
        self.errors = RecentErrors()
        self.statuses: dict[int, int] = {}  # number of responses by the first digit of the status
        self.unexpected = 0  # requests that failed with an unexpected error
        self.refused = 0  # requests that found the queue full or the model not ready

    def add(self, record: RequestRecord, status: int, reason: str, model: ModelMetrics | None) -> float:
        """Count a finished request, for its model too, and return its duration in seconds."""
        digit = status // 100
        self.statuses[digit] = self.statuses.get(digit, 0) + 1
        self.unexpected += reason == UNEXPECTED
        self.refused += reason in REFUSALS
        return (self.without_model if model is None else model).add(record, status, reason)
