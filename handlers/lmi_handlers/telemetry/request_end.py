"""The end of a request, over any protocol: counted and logged."""

import logging
from time import perf_counter, time
from typing import Any

import orjson

from lmi_core.errors import LmiError
from lmi_core.logs.logs import ACCESS_LOG, with_fields
from lmi_core.metrics.model_metrics import ANSWERED, CLIENT_LEFT, FAILED, LEFT, EndedRequest
from lmi_core.metrics.recent_errors import RecentError, without_values
from lmi_core.metrics.request_record import TRACE_HEADERS, trace_headers, trace_id
from lmi_core.registry.dispatcher import Dispatcher
from lmi_handlers.base.model_exchange import ModelExchange

logger = logging.getLogger(ACCESS_LOG)


class RequestEnd:
    """Metrics and the log line of a finished request."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        exchange: ModelExchange[Any],
        path: str,
        *,
        counts: bool = True,
        is_polled: bool = False,
    ) -> None:
        """`counts` means that the request uses a model and is included in the metrics. For `is_polled`, see Route."""
        self.reason: str | None = None
        self._message: str | None = None  # of the error; not the error itself, whose traceback holds the body and this
        self._level = logging.DEBUG if is_polled else logging.INFO
        self._dispatcher = dispatcher
        self._exchange = exchange
        self._path = path
        self._counts = counts
        self._trace = trace_headers(exchange.headers) if counts else None
        if self._trace is not None:
            TRACE_HEADERS.set(self._trace)

    def note_error(self, error: LmiError) -> None:
        """Record the error that ends the request; `note_answer` follows."""
        self.reason, self._message = error.kind, without_values(error.message)

    def note_answer(self, status: int, shown: str | None = None) -> None:
        """Record a sent answer; `shown` is its status in the protocol's own terms."""
        if self.reason is not None and self._message is not None:
            self._keep(self.reason, self._message, status)
        if status >= FAILED:
            self._level = logging.INFO
        seconds = self._end(status, self.reason)
        self._log(f"{shown or status} in {1000 * seconds:.0f} ms", status, seconds)

    def note_disconnect(self) -> None:
        """Record that the client disconnected before the end of the answer."""
        self.reason = LEFT
        seconds = self._end(CLIENT_LEFT, LEFT)
        self._log("ended: the client disconnected, or the server is stopping", CLIENT_LEFT, seconds)

    def _keep(self, kind: str, message: str, status: int) -> None:
        """Add the error to the server's latest errors."""
        exchange = self._exchange
        self._dispatcher.metrics.errors.add(
            RecentError(0, time(), exchange.record.model, exchange.request_id, self._path, status, kind, message)
        )

    def _end(self, status: int, reason: str | None) -> float:
        record, model = self._exchange.record, self._exchange.model
        record.request_id = self._exchange.request_id
        if not self._counts:
            return perf_counter() - record.begun
        self.reason = reason or record.finish_reason or ANSWERED
        of_model = None if model is None else model.metrics
        seconds = self._dispatcher.metrics.add(record, status, self.reason, of_model)
        for observe in self._dispatcher.metrics.observers:
            observe(EndedRequest(record, self._path, status, self.reason, seconds, self._trace))
        if model is not None and model.server.log_request_metric and record.submitted is not None:
            record.log(seconds)
        return seconds

    def _log(self, how: str, status: int, seconds: float) -> None:
        if not logger.isEnabledFor(self._level):
            return
        if self._exchange.client:
            how += f", client {self._exchange.client}"
        trace = "" if self._trace is None else f" (trace {self._trace_id})"
        extra = with_fields(self._fields(status, seconds))
        logger.log(self._level, "request %s: %s %s%s", self._exchange.request_id, self._path, how, trace, extra=extra)
        if self._exchange.record.prompts:
            logger.info(
                "request %s: the prompts were: %s",
                self._exchange.request_id,
                orjson.dumps(self._exchange.record.prompts).decode(),
                extra=with_fields({"request_id": self._exchange.request_id, "prompts": self._exchange.record.prompts}),
            )

    @property
    def _trace_id(self) -> str | None:
        return None if self._trace is None else trace_id(self._trace["traceparent"])

    def _fields(self, status: int, seconds: float) -> dict[str, object]:
        """Return the parts of the line for JSON; for requests to a model, with times and token counts."""
        record = self._exchange.record
        fields: dict[str, object] = {
            "request_id": self._exchange.request_id,
            "client": self._exchange.client,
            "dialect": record.dialect,
            "path": self._path,
            "status": status,
            "seconds": round(seconds, 6),
        }
        if self._trace is not None:
            fields["trace_id"] = self._trace_id
        if not self._counts:
            return fields
        first = record.time_to_first_token
        return fields | {
            "reason": self.reason,
            "model": record.model,
            "adapter": record.adapter,
            "prompt_tokens": record.prompt_tokens,
            "generated_tokens": record.generated_tokens,
            "cached_tokens": record.cached_tokens,
            "queue_seconds": round(record.queue_time, 6),
            "first_token_seconds": None if first is None else round(first, 6),
        }
