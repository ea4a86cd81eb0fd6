"""The aiohttp application, with the handlers' routes and `/ping`."""

from functools import partial

import orjson
from aiohttp import web

from lmi_core.did_you_mean import did_you_mean
from lmi_core.errors import LmiError
from lmi_core.handler import Handler
from lmi_core.plugins.registry import Registry
from lmi_core.serving.dispatcher import Dispatcher
from lmi_handlers.http.answer import answer
from lmi_handlers.http.openapi import add_documentation
from lmi_handlers.http.same_origin import SERVER_HOST

DISPATCHER = web.AppKey("dispatcher", Dispatcher)


def create_application(dispatcher: Dispatcher, handlers: Registry[Handler], host: str | None = None) -> web.Application:
    """Return the application; `host` is the address that it listens on, None for a Unix socket."""
    application = web.Application()
    if host is not None:
        application[SERVER_HOST] = host
    application[DISPATCHER] = dispatcher
    application.router.add_get("/ping", ping)
    add_documentation(application, handlers, dispatcher.models)
    for handler_type in handlers:
        handler = handler_type()
        for route in handler.routes:
            application.router.add_route(route.method, route.path, partial(answer, dispatcher, handler, route))
    application.router.add_route("*", "/{path:.*}", no_such_route)
    return application


async def ping(request: web.Request) -> web.Response:
    """Answer 200 while every model takes requests, 503 while one loads or is unhealthy."""
    try:
        await request.app[DISPATCHER].health()
    except LmiError as error:
        return json_response(503, {"status": "Unhealthy", "error": error.message})
    return json_response(200, {"status": "Healthy"})


async def no_such_route(request: web.Request) -> web.Response:
    """Answer 404 with the nearest route, or 405 when only the method is wrong."""
    methods: set[str] = set()
    for resource in request.app.router.resources():
        methods |= (await resource.resolve(request))[1] - {"*"}
    paths = [resource.canonical for resource in request.app.router.resources()]
    if methods:
        message = f"{request.path} takes {', '.join(sorted(methods))}, not {request.method}."
    else:
        message = f"there is no route {request.method} {request.path}.{did_you_mean(request.path, paths)}"
    status = 405 if methods else 404
    response = json_response(status, {"error": f"{message} GET /docs shows all", "code": status})
    if methods:
        response.headers["Allow"] = ", ".join(sorted(methods))
    return response


def json_response(status: int, content: object) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json")
