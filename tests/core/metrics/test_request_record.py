import pytest

from lmi_core.metrics.request_record import trace_headers, trace_id

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def test_a_valid_trace() -> None:
    assert trace_id(PARENT) == TRACE
    assert trace_headers({"traceparent": PARENT}) == {"traceparent": PARENT}
    headers = {"traceparent": PARENT, "tracestate": "vendor=1", "other": "x"}
    assert trace_headers(headers) == {"traceparent": PARENT, "tracestate": "vendor=1"}


def test_later_versions_may_have_more_behind() -> None:
    assert trace_id(f"cc-{TRACE}-00f067aa0ba902b7-01-what-comes") == TRACE


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "nonsense",
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-00f067aa0ba902b7-01",
        PARENT + "-" + "x" * 600,
        PARENT + "\n",
    ],
)
def test_what_is_no_trace(parent: str) -> None:
    assert trace_id(parent) is None
    assert trace_headers({"traceparent": parent, "tracestate": "vendor=1"}) is None


def test_a_state_that_is_too_long_is_left_out() -> None:
    assert trace_headers({"traceparent": PARENT, "tracestate": "v=" + "x" * 600}) == {"traceparent": PARENT}
