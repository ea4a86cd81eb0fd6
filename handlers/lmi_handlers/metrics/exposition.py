"""Metrics as text, in the forms that Prometheus reads."""

from collections.abc import Collection, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.exposition import ALLOWUTF8
from prometheus_client.openmetrics.exposition import generate_latest as write_open_metrics

from lmi_core.metrics.server_metrics import ServerMetrics
from lmi_handlers.metrics.declared import OPEN_METRICS
from lmi_handlers.metrics.scrape import Scraped, scrape


def exposition(
    server: ServerMetrics,
    models: Sequence[Scraped],
    accepted: str,
    names: Collection[str] = (),
    *,
    as_vllm: bool = False,
) -> tuple[str, bytes]:
    """Return the content type, chosen by an `Accept` header, and the current metrics.

    `names` selects samples, such as `lmi_requests_total`; without any, all metrics are included. `as_vllm`
    gives them vLLM's names.
    """
    families = scrape(server, models, names, as_vllm=as_vllm)
    registry = CollectorRegistry(auto_describe=True)
    registry.register(families)
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accepted)
    theirs = registry.restricted_registry(list(names)) if names else registry
    if content_type.startswith(OPEN_METRICS):
        # Its own choice would write `vllm:` in names as `vllm_`; no name needs UTF-8.
        encode = partial(write_open_metrics, escaping=ALLOWUTF8)
    own = families.text(open_metrics=content_type.startswith(OPEN_METRICS))
    return content_type, own.encode() + encode(theirs)
