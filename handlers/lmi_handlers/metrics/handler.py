"""The handler of the routes that Prometheus scrapes."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from lmi_core.calls.access import Access
from lmi_core.calls.answer_form import TEXT
from lmi_core.errors import LmiError
from lmi_core.handler import Answer, AnswerForm, Call, Route
from lmi_core.host.off_loop import WRITING
from lmi_core.metrics.model_metrics import ServerMetrics
from lmi_core.served_model import ServedModels
from lmi_handlers.base.plain_handler import PlainHandler, registry_of
from lmi_handlers.metrics.declared import OPEN_METRICS, Scrape
from lmi_handlers.process.front import this_front

if TYPE_CHECKING:
    from lmi_core.serving.model import Model
    from lmi_handlers.metrics.scrape import Scraped

HEALTH_SECONDS = 1.0  # for a backend to tell its health, which usually takes no time

SCRAPED = (AnswerForm(None, TEXT), AnswerForm(None, OPEN_METRICS))


async def metrics(call: Call, models: ServedModels) -> Answer:
    """Answer with all metrics, or with those in `name[]`, in the form of the `Accept` header.

    `names=vllm` selects vLLM's metrics, under vLLM's names.
    """
    names = frozenset(value for key, value in call.query.items() if key == "name[]")
    asked = Scrape(call.headers.get("Accept", ""), names, call.query.get("names") == "vllm")
    content_type, body = await write_metrics(models, asked)
    if (front := this_front()) is not None:
        from lmi_handlers.metrics.front_ends import add_up, others  # imports prometheus_client, like `exposition`

        from_others = await others(front, asked)
        body = await WRITING.run(lambda: add_up((body, *from_others)))
    return Answer(200, content_type, body)


async def write_metrics(models: ServedModels, asked: Scrape) -> tuple[str, bytes]:
    """Return the content type and this process's metrics."""
    # In this thread, because models and requests also change in it.
    loaded = [(model, model.metrics.tokens_so_far()) for model in registry_of(models).all_models()]
    healthy = await asyncio.gather(*(_is_healthy(model) for model, _ in loaded))
    served = [(model, is_healthy, tokens) for (model, tokens), is_healthy in zip(loaded, healthy, strict=True)]
    return await WRITING.run(lambda: exposition(models.metrics, served, asked))


async def _is_healthy(model: "Model") -> bool:
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            await model.health()
    except (LmiError, TimeoutError):
        return False
    return True


class MetricsHandler(PlainHandler):
    """The server's metrics, which take no place in any queue."""

    name: ClassVar[str] = "metrics"
    summary: ClassVar[str] = "Prometheus"
    routes: ClassVar[tuple[Route, ...]] = tuple(
        Route(
            path,
            "GET",
            metrics,
            "Metrics for Prometheus",
            is_polled=True,
            compresses=True,
            access=Access.MONITORING,
            answers=SCRAPED,
        )
        for path in ("/metrics", "/server/metrics")
    )


def exposition(server: ServerMetrics, models: "Sequence[Scraped]", asked: Scrape) -> tuple[str, bytes]:
    """Return the content type and the current metrics."""
    # Imported here, because the start need not wait for prometheus_client, which `scrape` needs too.
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.openmetrics.exposition import ALLOWUTF8
    from prometheus_client.openmetrics.exposition import generate_latest as write_open_metrics

    from lmi_handlers.metrics.scrape import scrape

    families = scrape(server, models, asked)
    registry = CollectorRegistry(auto_describe=True)
    registry.register(families)
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(asked.accepted)
    theirs = registry.restricted_registry(list(asked.names)) if asked.names else registry
    if content_type.startswith(OPEN_METRICS):
        # The default would change `vllm:` in names to `vllm_`; no name needs UTF-8.
        encode = partial(write_open_metrics, escaping=ALLOWUTF8)
    own = families.text(open_metrics=content_type.startswith(OPEN_METRICS))
    return content_type, own.encode() + encode(theirs)
