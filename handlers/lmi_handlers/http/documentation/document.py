"""The OpenAPI document of all routes."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any, NotRequired

from typing_extensions import TypedDict

from lmi_core.calls.answer_form import AnswerForm
from lmi_core.handler import Handler, Route
from lmi_handlers.http.documentation.responses import HEADERS, Responses, Served
from lmi_handlers.http.documentation.schemas import JsonObject, Schemas

PLAIN_TEXT = {"type": "string", "minLength": 1, "description": "The prompt."}
SERVER = "server"
DESCRIPTION = (
    "Every route of this server, by dialect: every dialect works with every model. `GET /docs` starts with examples. "
    "Schemas of `text/event-stream`, `application/jsonlines` and `application/x-ndjson` describe a single event or "
    "line. Later versions may add members to answers."
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


def document(handlers: Sequence[type[Handler]], served: Served) -> JsonObject:
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
    told = {SERVER: "The server itself"}
    for handler, _ in routes:
        if handler is not None:
            told[handler.name] = handler.summary or handler.name
    return [{"name": name, "description": summary} for name, summary in told.items()]


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
