"""Metrics as text, in the forms that Prometheus reads."""

from collections.abc import Collection, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from lmi_core.metrics.server_metrics import ServerMetrics
from lmi_handlers.metrics.scrape import Scraped, scrape


def exposition(
    server: ServerMetrics, models: Sequence[Scraped], accepted: str, names: Collection[str] = ()
) -> tuple[str, bytes]:
    """Return the content type, chosen by an `Accept` header, and the current metrics.

    `names` selects samples, such as `lmi_requests_total`; without any, all metrics are included.
    """
    registry = CollectorRegistry()
    registry.register(scrape(server, models))
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accepted)
    return content_type, encode(registry.restricted_registry(list(names)) if names else registry)
