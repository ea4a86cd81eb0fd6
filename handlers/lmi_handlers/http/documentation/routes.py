"""The route of the OpenAPI document."""

from collections.abc import Callable
from functools import lru_cache

import orjson
from aiohttp import web
from aiohttp.web_urldispatcher import AbstractRoute

from lmi_core.handler import Handler
from lmi_core.host.beside_loop import LENGTHY
from lmi_core.plugins.registry import Registry
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.serving.model import Model
from lmi_handlers.http.documentation.document import document
from lmi_handlers.http.documentation.responses import Served

DOCUMENT: web.AppKey[Callable[[], bytes]] = web.AppKey("document")
# The output formatters whose answers have a declared form.
DESCRIBED = frozenset(
    {
        *("json", "jsonlines", "sse", "none"),
        *("tgi_json", "tgi_jsonlines", "tgi_sse"),
        *("dynamic_json", "dynamic_jsonlines"),
        *("async_json", "async_jsonlines"),
        *("lmi_chat", "lmi_chat_jsonlines", "lmi_chat_sse"),
    }
)


def add_documentation(
    application: web.Application, handlers: Registry[Handler], dispatcher: Dispatcher
) -> AbstractRoute:
    """Add and return the route `/openapi.json`."""

    application[DOCUMENT] = lambda: _encoded(tuple(handlers), described(dispatcher))
    return application.router.add_get("/openapi.json", openapi)


async def openapi(request: web.Request) -> web.Response:
    # Generated on demand, because it takes longer than the rest of the start, and only once for concurrent requests.
    body = await LENGTHY.run(request.app[DOCUMENT])
    return web.Response(body=body, content_type="application/json")


def described(dispatcher: Dispatcher) -> Served:
    """Return the document's current facts about the models; adapters may contain code."""
    models = dispatcher.models.values()
    return Served(
        models=tuple(sorted(dispatcher.models)),
        own_code=any(_writes_in_own_forms(model) for model in models),
        formatted=any(model.chat_formatters.everywhere for model in models),
    )


def _writes_in_own_forms(model: Model) -> bool:
    names = (model.formatters, model.chat_formatters)
    known = {name for each in names for name in (each.whole, each.stream)} <= DESCRIBED
    return model.function is not None or not known or model.plan.code.writes


@lru_cache(maxsize=8)  # a test process starts many servers
def _encoded(handlers: tuple[type[Handler], ...], served: Served) -> bytes:
    return orjson.dumps(document(handlers, served))
