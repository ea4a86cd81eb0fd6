"""Times and token counts of one request, and its trace from W3C's headers."""

import logging
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from time import perf_counter
from typing import Protocol

from lmi_core.generation.output import FinishReason, GenerationOutput, GenerationStep

logger = logging.getLogger(__name__)

# https://www.w3.org/TR/trace-context/#traceparent-header
TRACE_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
NO_IDS = ("0" * 32, "0" * 16)
TRACE_NAMES = ("traceparent", "tracestate")
MAX_TRACE_LENGTH = 512  # maximum length of a header; W3C requires everyone to forward this much

# The trace of the current task's request, for engines that write their own spans.
TRACE_HEADERS: ContextVar[Mapping[str, str] | None] = ContextVar("trace_headers", default=None)


class Prompt(Protocol):
    """A checked request for a text or a vector."""

    @property
    def prompt_ids(self) -> list[int]: ...


class RequestRecord:
    """The times and counts of one request, recorded a few times per request and never per token.

    Times are those of `time.perf_counter`; None for stages that are not reached yet.
    """

    def __init__(self, dialect: str, request_id: str) -> None:
        self.dialect = dialect
        self.request_id = request_id
        self.model = ""  # the name of the served model, once found; never text from a client
        self.adapter = ""  # the adapter of all prompts; "" for none, or for several
        self.begun = perf_counter()
        self.submitted: float | None = None  # when it was submitted to the engine
        self.first_token: float | None = None
        self.ended: float | None = None  # when the engine finished
        self.server_queue_time = 0.0  # seconds that the request waited in the server for the model and for its turn
        self.engine_queue_time: float | None = None  # seconds that it waited in the engine, if the engine reports it
        self._waits_since: float | None = None  # when the current wait in the server began
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.cached_tokens = 0
        self.num_sequences = 0  # 0 if nothing is generated
        self.finish_reason: FinishReason | None = None
        self.output: GenerationOutput | None = None  # set while it grows
        self.prompts: list[str] = []  # for the log, if the model's options enable it

    def wait(self) -> None:
        """Record that the request waits in the server from now on."""
        self._waits_since = perf_counter()

    def proceed(self) -> None:
        """Record that the request no longer waits."""
        self.server_queue_time = self._time_in_server
        self._waits_since = None

    @property
    def _time_in_server(self) -> float:
        waiting = 0.0 if self._waits_since is None else perf_counter() - self._waits_since
        return self.server_queue_time + waiting

    def submit(self, prompts: Sequence[Prompt]) -> None:
        """Record that the engine gets the request's prompts now, after the request has waited for its turn."""
        self.proceed()
        self.prompt_tokens = sum([len(prompt.prompt_ids) for prompt in prompts])
        self.submitted = perf_counter()

    def begin(self, step: GenerationStep) -> bool:
        """Record the facts in the first steps; return whether they include the first token."""
        if step.queue_time is not None:
            self.engine_queue_time = step.queue_time
        if not step.tokens:
            return False
        self.first_token = perf_counter()
        return True

    def end(self, step: GenerationStep) -> None:
        """Record the end of a sequence; the last one is used."""
        self.ended = perf_counter()
        if step.sequence_index == 0 and step.prompt_index == 0:
            self.finish_reason = step.finish_reason

    def count(self, output: GenerationOutput) -> None:
        """Set the numbers of tokens from the output, complete or not."""
        self.output = None
        self.num_sequences = len(output.sequences)
        self.generated_tokens = sum([len(sequence.tokens) for sequence in output.sequences])
        self.cached_tokens = output.cached_tokens or 0

    @property
    def tokens_so_far(self) -> int:
        """The tokens generated so far, counted on demand, which costs nothing per token."""
        if self.output is None:
            return self.generated_tokens
        return sum([len(sequence.tokens) for sequence in self.output.sequences])

    @property
    def cached_so_far(self) -> int:
        """The prompt tokens found in the engine's prefix cache, if reported."""
        return self.cached_tokens if self.output is None else self.output.cached_tokens or 0

    @property
    def queue_time(self) -> float:
        """The seconds that the request has waited so far, in the server and in the engine."""
        return self._time_in_server + (self.engine_queue_time or 0.0)

    @property
    def scheduled(self) -> float | None:
        """The time when the engine started to work on the request."""
        return None if self.submitted is None else self.submitted + (self.engine_queue_time or 0.0)

    @property
    def time_to_first_token(self) -> float | None:
        return None if self.first_token is None else self.first_token - self.begun

    @property
    def time_per_token(self) -> float | None:
        """The mean time between two tokens of a sequence; None if no sequence has two."""
        if self.first_token is None or self.ended is None:
            return None
        further = self.generated_tokens / self.num_sequences - 1
        return (self.ended - self.first_token) / further if further > 0 else None

    @property
    def engine_time(self) -> float | None:
        """The seconds that the engine worked on the request, excluding the wait in the engine's own queue."""
        scheduled = self.scheduled
        return None if scheduled is None or self.ended is None else self.ended - scheduled

    def log(self, seconds: float) -> None:
        """Log the times and token counts for `log_request_metric`, even if the request failed or its client left."""
        first = self.time_to_first_token
        generated = ""
        if self.num_sequences:
            latency = "no token" if first is None else f"first token after {1000 * first:.1f} ms"
            generated = f"{self.generated_tokens} generated tokens, {latency}, "
        prompt, taken = self.prompt_tokens, 1000 * seconds
        logger.info("request %s: %d prompt tokens, %sall after %.1f ms", self.request_id, prompt, generated, taken)


def trace_headers(headers: Mapping[str, str]) -> dict[str, str] | None:
    """Return a request's trace headers, in lower case; None without a valid trace."""
    parent = headers.get(TRACE_NAMES[0])
    if parent is None or trace_id(parent) is None:
        return None
    found, state = {TRACE_NAMES[0]: parent}, headers.get(TRACE_NAMES[1])
    if state is not None and len(state) <= MAX_TRACE_LENGTH:
        found[TRACE_NAMES[1]] = state
    return found


def trace_id(parent: str) -> str | None:
    """Return the id of the trace in a `traceparent` header, or None if the header is invalid."""
    found = TRACE_PARENT.fullmatch(parent) if len(parent) <= MAX_TRACE_LENGTH else None
    return None if found is None or found["trace"] in NO_IDS or found["span"] in NO_IDS else found["trace"]
