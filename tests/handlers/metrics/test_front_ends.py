from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics

from lmi_core.metrics.model_metrics import ServerMetrics
from lmi_handlers.metrics.declared import OPEN_METRICS, Scrape
from lmi_handlers.metrics.front_ends import add_up
from lmi_handlers.metrics.handler import exposition

FIRST = b"""\
# HELP lmi_requests_total Requests.
# TYPE lmi_requests_total counter
lmi_requests_total{model="a b",status="200"} 3
# HELP lmi_engine_time_seconds_total Time.
# TYPE lmi_engine_time_seconds_total counter
lmi_engine_time_seconds_total{model="a b"} 1.25
# HELP lmi_worker_restarts_total Restarts.
# TYPE lmi_worker_restarts_total counter
lmi_worker_restarts_total{model="a b"} 2
"""
SECOND = b"""\
# HELP lmi_requests_total Requests.
# TYPE lmi_requests_total counter
lmi_requests_total{model="a b",status="200"} 4
lmi_requests_total{model="a b",status="429"} 1
# HELP lmi_worker_restarts_total Restarts.
# TYPE lmi_worker_restarts_total counter
lmi_worker_restarts_total{model="a b"} 1
# HELP lmi_requests_rejected_total Refused.
# TYPE lmi_requests_rejected_total counter
lmi_requests_rejected_total{model="a b",reason="rate_limited"} 1
"""


def values(text: str) -> dict[str, float]:
    families: Iterable[Metric] = parse_open_metrics(text)  # type: ignore[no-untyped-call]
    return {sample.name: sample.value for family in families for sample in family.samples}


SUM = """\
# HELP lmi_requests_total Requests.
# TYPE lmi_requests_total counter
lmi_requests_total{model="a b",status="200"} 7
lmi_requests_total{model="a b",status="429"} 1
# HELP lmi_engine_time_seconds_total Time.
# TYPE lmi_engine_time_seconds_total counter
lmi_engine_time_seconds_total{model="a b"} 1.25
# HELP lmi_worker_restarts_total Restarts.
# TYPE lmi_worker_restarts_total counter
lmi_worker_restarts_total{model="a b"} 2
# HELP lmi_requests_rejected_total Refused.
# TYPE lmi_requests_rejected_total counter
lmi_requests_rejected_total{model="a b",reason="rate_limited"} 1
"""


def test_counts_are_added_up_and_figures_of_the_same_engine_are_not() -> None:
    assert add_up([FIRST, SECOND]).decode() == SUM


def test_one_front_end_alone() -> None:
    assert add_up([FIRST]) == FIRST


def test_open_metrics() -> None:
    _, body = exposition(ServerMetrics(), [], Scrape(OPEN_METRICS))
    text = add_up([body, body]).decode()
    assert text.endswith("# EOF\n")
    together, alone = values(text), values(body.decode())
    assert together["lmi_server_info"] == 1
    assert together["process_start_time_seconds"] == alone["process_start_time_seconds"]
    assert together["process_resident_memory_bytes"] == 2 * alone["process_resident_memory_bytes"]
