"""The OpenAPI document of all routes, and a page that displays it."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from lmi_core.handler import Handler, Route
from lmi_core.plugins.registry import Registry

JsonObject = dict[str, Any]

SCHEMA_REFERENCE = "#/components/schemas/{model}"
SERVER_ROUTES = (
    Route("/ping", "GET", summary="Whether every model is ready"),
    Route("/openapi.json", "GET", summary="This document"),
    Route("/docs", "GET", summary="This document as a web page"),
)
RESPONSES = {"200": {"description": "The answer"}, "default": {"description": "An error, in the dialect's own format"}}
PLAIN_TEXT = {"type": "string", "minLength": 1, "description": "The prompt."}
PAGE = Path(__file__).with_name("docs.html")
# The page is self-contained: it loads nothing from other servers.
PAGE_POLICY = "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"


def add_documentation(application: web.Application, handlers: Registry[Handler], models: Iterable[str]) -> None:
    """Add the routes `/openapi.json` and `/docs`."""
    body = orjson.dumps(document(handlers, models))

    async def openapi(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    application.router.add_get("/openapi.json", openapi)
    application.router.add_get("/docs", page)


async def page(request: web.Request) -> web.StreamResponse:
    return web.Response(
        body=PAGE.read_bytes(),
        content_type="text/html",
        charset="utf-8",
        headers={"Content-Security-Policy": PAGE_POLICY},
    )


def document(handlers: Registry[Handler], models: Iterable[str]) -> JsonObject:
    """Return the OpenAPI 3.1 document of all handlers' routes, with the models as examples in paths."""
    routes = list(_routes(handlers))
    payloads = dict.fromkeys(payload for _, route in routes for payload in route.payloads)
    references, definitions = _payload_schemas(tuple(payloads))
    schemas = {payload: references[payload, "validation"] for payload in payloads}
    paths: JsonObject = {}
    for tag, route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(tag, route, schemas, sorted(models))
    return {
        "openapi": "3.1.0",
        "info": {"title": "LMI handlers", "version": version("lmi-handlers")},
        "paths": paths,
        "components": {"schemas": definitions.get("$defs", {})},
    }


def _routes(handlers: Registry[Handler]) -> Iterator[tuple[str, Route]]:
    for route in SERVER_ROUTES:
        yield "server", route
    for handler in reversed(list(handlers)):  # plugins register first, and their routes come last
        for route in handler.routes:
            yield handler.name, route


def _operation(tag: str, route: Route, schemas: dict[type[BaseModel], JsonObject], models: list[str]) -> JsonObject:
    operation: JsonObject = {
        "tags": [tag],
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "summary": route.summary,
        "parameters": [_path_parameter(name, models) for name in re.findall(r"{(\w+)}", route.path)],
        "responses": RESPONSES,
    }
    if route.payloads:
        forms = [schemas[payload] for payload in route.payloads]
        schema = forms[0] if len(forms) == 1 else {"anyOf": forms}
        content: JsonObject = {"application/json": {"schema": schema}}
        if route.plain_text:
            content["text/plain"] = {"schema": PLAIN_TEXT}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _path_parameter(name: str, models: list[str]) -> JsonObject:
    examples = models if name in ("model", "endpoint") else ["1"]
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "examples": examples}}


@lru_cache(maxsize=4)  # costs more than the rest of a start, and a test process starts many servers
def _payload_schemas(payloads: tuple[type[BaseModel], ...]) -> tuple[dict[Any, JsonObject], JsonObject]:
    """Return a reference to the schema of each payload, and the definitions of those schemas."""
    return models_json_schema([(payload, "validation") for payload in payloads], ref_template=SCHEMA_REFERENCE)
