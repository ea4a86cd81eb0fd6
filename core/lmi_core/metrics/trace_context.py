"""The trace of a request, from W3C's headers."""

import re
from collections.abc import Mapping
from contextvars import ContextVar

# https://www.w3.org/TR/trace-context/#traceparent-header
TRACE_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
NO_IDS = ("0" * 32, "0" * 16)
NAMES = ("traceparent", "tracestate")
MAX_LENGTH = 512  # maximum length of a header; W3C requires everyone to forward this much

# The trace of the current task's request, for engines that write their own spans.
TRACE_HEADERS: ContextVar[Mapping[str, str] | None] = ContextVar("trace_headers", default=None)


def trace_headers(headers: Mapping[str, str]) -> dict[str, str] | None:
    """Return a request's trace headers, in lower case; None without a valid trace."""
    parent = headers.get(NAMES[0])
    if parent is None or trace_id(parent) is None:
        return None
    state = headers.get(NAMES[1])
    return {NAMES[0]: parent} if state is None or len(state) > MAX_LENGTH else {NAMES[0]: parent, NAMES[1]: state}


def trace_id(parent: str) -> str | None:
    """Return the id of the trace in a `traceparent` header, or None if the header is invalid."""
    found = TRACE_PARENT.fullmatch(parent) if len(parent) <= MAX_LENGTH else None
    return None if found is None or found["trace"] in NO_IDS or found["span"] in NO_IDS else found["trace"]
