"""The OpenAPI document of all routes, and its own route."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any, NotRequired

import orjson
from aiohttp import web
from aiohttp.web_urldispatcher import AbstractRoute
from typing_extensions import TypedDict

from lmi_core.calls.answer_form import AnswerForm
from lmi_core.handler import Handler, Route
from lmi_core.host.off_loop import LENGTHY
from lmi_core.plugins.registry import Registry
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.serving.model import Model
from lmi_handlers.http.documentation.responses import HEADERS, JsonObject, ModelFacts, Responses, Schemas

PLAIN_TEXT = {"type": "string", "minLength": 1, "description": "The prompt."}
SERVER = "server"
DESCRIPTION = (
    "Every route of this server, by dialect: every dialect works with every model. `GET /docs` starts with examples. "
    "Schemas of `text/event-stream`, `application/jsonlines` and `application/x-ndjson` describe a single event or "
    "line. Later versions may add members to answers."
)
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


class Health(TypedDict):
    """Whether every model accepts requests."""

    status: str
    error: NotRequired[str]


SERVER_ROUTES = (
    Route(
        "/ping",
        "GET",
        summary="Whether every model is ready",
        answers=(AnswerForm(Health, statuses=(200, 503)),),
    ),
    Route("/openapi.json", "GET", summary="This document", answers=(AnswerForm(dict[str, Any]),)),
)


def document(handlers: Sequence[type[Handler]], served: ModelFacts) -> JsonObject:
    """Return the OpenAPI 3.1 document of all handlers' routes, with the models as examples in paths."""
    routes = list(_routes(handlers))
    schemas = _schemas(tuple(_types(routes)))
    responses = Responses(schemas, served)
    paths: JsonObject = {}
    for handler, route in routes:
        operation = _operation(handler, route, schemas, list(served.models))
        paths.setdefault(route.path, {})[route.method.lower()] = operation | {"responses": responses.of(handler, route)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "LMI handlers",
            "summary": f"Serves {', '.join(served.models)}",
            "description": DESCRIPTION,
            "version": version("lmi-handlers"),
        },
        "tags": _tags(routes),
        "paths": paths,
        "components": {
            "schemas": schemas.definitions,
            "responses": dict(sorted(responses.shared.items())),
            "headers": HEADERS,
        },
    }


@lru_cache(maxsize=4)  # nine tenths of the work, and independent of the models
def _schemas(types: tuple[Any, ...]) -> Schemas:
    return Schemas(types)


def _routes(handlers: Sequence[type[Handler]]) -> Iterator[tuple[type[Handler] | None, Route]]:
    for route in SERVER_ROUTES:
        yield None, route
    for handler in reversed(handlers):  # plugins register first, and their routes come last
        for route in handler.routes:
            # The others are the same routes with a trailing slash
            if route.path == "/" or not route.path.endswith("/"):
                yield handler, route


def _types(routes: list[tuple[type[Handler] | None, Route]]) -> Iterator[Any]:
    for handler, route in routes:
        yield from route.payloads
        for form in (*route.answers, *(handler.errors if handler is not None else ())):
            if form.type is not None:
                yield form.type


def _tags(routes: list[tuple[type[Handler] | None, Route]]) -> list[JsonObject]:
    summaries = {SERVER: "The server itself"}
    for handler, _ in routes:
        if handler is not None:
            summaries[handler.name] = handler.summary or handler.name
    return [{"name": name, "description": summary} for name, summary in summaries.items()]


def _operation(handler: type[Handler] | None, route: Route, schemas: Schemas, models: list[str]) -> JsonObject:
    operation: JsonObject = {
        "tags": [handler.name if handler is not None else SERVER],
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "summary": route.summary,
        "parameters": [_path_parameter(name, models) for name in re.findall(r"{(\w+)}", route.path)],
    }
    if route.payloads:
        content: JsonObject = {"application/json": {"schema": schemas.of(route.payloads)}}
        if route.plain_text:
            content["text/plain"] = {"schema": PLAIN_TEXT}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _path_parameter(name: str, models: list[str]) -> JsonObject:
    examples = models if name in ("model", "endpoint") else ["1"]
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "examples": examples}}


def add_documentation(
    application: web.Application, handlers: Registry[Handler], dispatcher: Dispatcher
) -> AbstractRoute:
    """Add and return the route `/openapi.json`."""

    application[DOCUMENT] = lambda: _encode(tuple(handlers), read_facts(dispatcher))
    return application.router.add_get("/openapi.json", openapi)


async def openapi(request: web.Request) -> web.Response:
    # Generated on demand, because it takes longer than the rest of the start, and only once for concurrent requests.
    body = await LENGTHY.run(request.app[DOCUMENT])
    return web.Response(body=body, content_type="application/json")


def read_facts(dispatcher: Dispatcher) -> ModelFacts:
    """Return the document's current facts about the models; adapters may contain code."""
    models = dispatcher.models.values()
    return ModelFacts(
        models=tuple(sorted(dispatcher.models)),
        own_code=any(_writes_in_own_forms(model) for model in models),
        formatted=any(model.chat_formatters.everywhere for model in models),
    )


def _writes_in_own_forms(model: Model) -> bool:
    names = (model.formatters, model.chat_formatters)
    known = {name for each in names for name in (each.whole, each.stream)} <= DESCRIBED
    return model.function is not None or not known or model.plan.code.writes


@lru_cache(maxsize=8)  # a test process starts many servers
def _encode(handlers: tuple[type[Handler], ...], served: ModelFacts) -> bytes:
    return orjson.dumps(document(handlers, served))
