"""The aiohttp application, with the handlers' routes and `/ping`."""

from functools import partial

import orjson
from aiohttp import web

from lmi_core.errors import LmiError
from lmi_core.handler import Handler, Route
from lmi_core.plugins.registry import Registry
from lmi_core.serving.dispatcher import Dispatcher
from lmi_handlers.http.answer import answer
from lmi_handlers.http.compressed_bodies import close_behind_unread
from lmi_handlers.http.no_such_route import no_such_route
from lmi_handlers.http.openapi import add_documentation
from lmi_handlers.http.same_origin import SERVER_HOST

DISPATCHER = web.AppKey("dispatcher", Dispatcher)


def create_application(dispatcher: Dispatcher, handlers: Registry[Handler], host: str | None = None) -> web.Application:
    """Return the application; `host` is the address that it listens on, None for a Unix socket."""
    application = web.Application(middlewares=[close_behind_unread])
    if host is not None:
        application[SERVER_HOST] = host
    application[DISPATCHER] = dispatcher
    application.router.add_get("/ping", ping)
    add_documentation(application, handlers, dispatcher.models)
    _add_routes(application, dispatcher, handlers)
    application.router.add_route("*", "/{path:.*}", no_such_route)
    return application


def _add_routes(application: web.Application, dispatcher: Dispatcher, handlers: Registry[Handler]) -> None:
    """Add what the handlers declare, and then their other forms, but for those that a handler declares itself."""
    answers = [
        (route, partial(answer, dispatcher, handler, route))
        for handler in [handler_type() for handler_type in handlers]
        for route in handler.routes
    ]
    for route, answered in answers:
        application.router.add_route(route.method, route.path, answered)
    taken = {(route.method, route.path) for route, _ in answers}
    for route, answered in answers:
        for form in _forms(route):
            if form not in taken:
                application.router.add_route(*form, answered)
                taken.add(form)


def _forms(route: Route) -> list[tuple[str, str]]:
    """Return the methods and paths that are the same route: with a slash at its end, and HEAD for GET."""
    methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
    return [(method, path) for path in (route.path, route.path.removesuffix("/") + "/") for method in methods]


async def ping(request: web.Request) -> web.Response:
    """Answer 200 while every model takes requests, 503 while one loads or is unhealthy."""
    try:
        await request.app[DISPATCHER].health()
    except LmiError as error:
        return json_response(503, {"status": "Unhealthy", "error": error.message})
    return json_response(200, {"status": "Healthy"})


def json_response(status: int, content: object) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json")
