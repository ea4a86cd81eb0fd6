"""Metrics as text, in the forms that Prometheus reads."""

from collections.abc import Collection, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from lmi_core.metrics.server_metrics import ServerMetrics
from lmi_handlers.metrics.declared import OPEN_METRICS
from lmi_handlers.metrics.scrape import Scraped, scrape


def exposition(
    server: ServerMetrics, models: Sequence[Scraped], accepted: str, names: Collection[str] = ()
) -> tuple[str, bytes]:
    """Return the content type, chosen by an `Accept` header, and the current metrics.

    `names` selects samples, such as `lmi_requests_total`; without any, all metrics are included.
    """
    families = scrape(server, models, names)
    registry = CollectorRegistry(auto_describe=True)
    registry.register(families)
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accepted)
    theirs = registry.restricted_registry(list(names)) if names else registry
    own = families.text(open_metrics=content_type.startswith(OPEN_METRICS))
    return content_type, own.encode() + encode(theirs)
