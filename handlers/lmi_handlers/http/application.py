"""The aiohttp application, with the handlers' routes and `/ping`."""

import asyncio
from functools import lru_cache, partial
from typing import cast

import orjson
from aiohttp import web
from aiohttp.web_urldispatcher import AbstractResource, AbstractRoute

from lmi_core.errors import LmiError
from lmi_core.handler import Handler, Route
from lmi_core.plugins.registry import Lazy, Registry
from lmi_core.registry.dispatcher import Dispatcher
from lmi_handlers.access.control import AccessControl
from lmi_handlers.fields.request_headers import REQUEST_ID_HEADER, request_id
from lmi_handlers.http.answer import ACCESS, CANDIDATES, DISPATCHER, Answering, Form, answer
from lmi_handlers.http.bodies.reading import PENDING_BODIES, PendingBodies
from lmi_handlers.http.connections.connections import Connections
from lmi_handlers.http.connections.limits import DEFAULT_LIMITS
from lmi_handlers.http.documentation.document import add_documentation
from lmi_handlers.http.no_such_route import no_such_route
from lmi_handlers.http.origins.cross_origin import CrossOriginAnswers
from lmi_handlers.http.origins.same_origin import SERVER_HOST


def create_application(
    dispatcher: Dispatcher,
    handlers: Registry[Handler],
    host: str | None = None,
    connections: Connections | None = None,
    access: AccessControl | None = None,
) -> web.Application:
    """Return the application; `host` is the address that it listens on, None for a Unix socket.

    `connections`, if given, tracks its requests; `access` contains the access rules.
    """
    application = web.Application(middlewares=[] if connections is None else [connections.follow])
    if host is not None:
        application[SERVER_HOST] = host
    application[DISPATCHER] = dispatcher
    application[ACCESS] = AccessControl(dispatcher) if access is None else access
    limits = DEFAULT_LIMITS if connections is None else connections.limits
    application[PENDING_BODIES] = PendingBodies(limits.max_pending_body_bytes)
    shared = {application.router.add_get("/ping", ping), add_documentation(application, handlers, dispatcher)}
    shared |= _add_routes(application, handlers)
    application.router.add_route("*", "/{path:(?s:.*)}", partial(no_such_route, dispatcher))
    if (rules := application[ACCESS].cross_origin) is not None:
        CrossOriginAnswers(rules, shared).install(application)
    return application


def _add_routes(application: web.Application, handlers: Registry[Handler]) -> set[AbstractRoute]:
    """Add the declared routes of the handlers, and their other forms unless declared too. Return the client routes."""
    answering: list[Answering] = []
    for entry in handlers.entries():
        if isinstance(entry, Lazy):
            answering += LazyDialect(handlers, entry).answering
        else:
            handler = entry()
            answering += [Answering(route, handler) for route in handler.routes]
    by_form: dict[Form, list[Answering]] = {}
    for each in answering:
        by_form.setdefault((each.route.method, each.route.path), []).append(each)
    declared = set(by_form)
    for each in answering:
        for form in _forms(each.route):
            if form not in declared:
                by_form.setdefault(form, []).append(each)
    application[CANDIDATES] = by_form
    routes = _routes(tuple(by_form))
    for resource in dict.fromkeys(cast(AbstractResource, route.resource) for route in routes.values()):
        application.router.register_resource(resource)
    return {routes[form] for form, of_form in by_form.items() if all(each.route.is_for_clients for each in of_form)}


@lru_cache(maxsize=8)  # a test process starts many servers, and making hundreds of routes is half of the start
def _routes(forms: tuple[Form, ...]) -> dict[Form, AbstractRoute]:
    """Return routes for any application that has CANDIDATES of these forms."""
    router = web.UrlDispatcher()
    return {form: router.add_route(*form, partial(answer, form)) for form in forms}


class LazyDialect:
    """A dialect that is imported in another thread at the first request to one of its routes."""

    def __init__(self, handlers: Registry[Handler], lazy: Lazy) -> None:
        self._handlers, self._name = handlers, lazy.name
        self._loading: asyncio.Future[type[Handler]] | None = None
        forms = [each.split(" ") for each in lazy.routes]
        self.answering = [Answering(Route(path, method), load=self._load) for method, path in forms]

    async def _load(self) -> None:
        """Set the handler and the whole route of each Answering. If the import fails, the next request tries again."""
        loading = self._loading = self._loading or asyncio.ensure_future(
            asyncio.to_thread(self._handlers.get, self._name)
        )
        try:
            handler_type = await asyncio.shield(loading)
        except Exception:
            if self._loading is loading:
                self._loading = None
            raise
        if self.answering[0].handler is None:
            handler = handler_type()
            routes = {(route.method, route.path): route for route in handler.routes}
            for each in self.answering:
                each.route, each.handler = routes[each.route.method, each.route.path], handler


def _forms(route: Route) -> list[Form]:
    """Return the equivalent methods and paths of a route: with a trailing slash, and HEAD for GET."""
    methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
    return [(method, path) for path in (route.path, route.path.removesuffix("/") + "/") for method in methods]


async def ping(request: web.Request) -> web.Response:
    """Answer 200 if every model accepts requests, 503 while one loads or is unhealthy.

    SageMaker's server of many models is healthy before the first one is loaded.
    """
    try:
        await request.app[DISPATCHER].health(may_be_empty=request.app[ACCESS].options.multi_model)
    except LmiError as error:
        response = json_response(503, {"status": "Unhealthy", "error": error.message})
    else:
        response = json_response(200, {"status": "Healthy"})
    response.headers[REQUEST_ID_HEADER] = request_id(request.headers)
    return response


def json_response(status: int, content: object) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json")
