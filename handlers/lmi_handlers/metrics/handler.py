"""The handler of the routes that Prometheus scrapes."""

from collections.abc import Callable
from typing import ClassVar

from lmi_core.calls.access import Access
from lmi_core.calls.answer_form import TEXT
from lmi_core.handler import Answer, AnswerForm, Call, Handler, Route
from lmi_core.hookspecs import hookimpl
from lmi_core.host.beside_loop import WRITING
from lmi_core.served_model import ServedModels
from lmi_handlers.base.plain_handler import PlainHandler
from lmi_handlers.management.served import registry_of
from lmi_handlers.metrics.declared import OPEN_METRICS

SCRAPED = (AnswerForm(None, TEXT), AnswerForm(None, OPEN_METRICS))


async def metrics(call: Call, models: ServedModels) -> Answer:
    """Answer with all metrics, or with those in `name[]`, in the form of the `Accept` header.

    `names=vllm` selects those that vLLM has, under its names.
    """
    from lmi_handlers.metrics.exposition import exposition  # prometheus_client, which start-up need not wait for

    names = frozenset(value for key, value in call.query.items() if key == "name[]")
    as_vllm = call.query.get("names") == "vllm"
    accepted = call.headers.get("Accept", "")
    # Here, as models and requests come and go in this thread.
    served = [(model, model.metrics.tokens_so_far()) for model in registry_of(models).all_models()]
    content_type, body = await WRITING.run(lambda: exposition(models.metrics, served, accepted, names, as_vllm=as_vllm))
    return Answer(200, content_type, body)


class MetricsHandler(PlainHandler):
    """The server's metrics, which take no place in any queue."""

    name: ClassVar[str] = "metrics"
    summary: ClassVar[str] = "Prometheus"
    routes: ClassVar[tuple[Route, ...]] = tuple(
        Route(
            path, "GET", metrics, "Metrics for Prometheus", compresses=True, access=Access.MONITORING, answers=SCRAPED
        )
        for path in ("/metrics", "/server/metrics")
    )


@hookimpl
def lmi_register_handlers(register: Callable[[type[Handler]], None]) -> None:
    register(MetricsHandler)
