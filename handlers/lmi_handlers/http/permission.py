"""The permission of a request to use its route."""

from aiohttp import web

from lmi_core.calls.access import Reach
from lmi_core.configuration.host_patterns import ANY, Host
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.route import Route
from lmi_handlers.access.control import AccessControl, Caller, Permit
from lmi_handlers.http.origins.cross_origin import is_admitted
from lmi_handlers.http.origins.same_origin import refuse_foreign_pages

ACCESS = web.AppKey("access", AccessControl)
ANY_HOST = Host(ANY, None)


def check_access(request: web.Request, route: Route, dispatcher: Dispatcher) -> Permit:
    """Return the permission to use a route. Raise Unauthorized or Forbidden."""
    control = request.app[ACCESS]
    permit = control.check(route, Caller(request.remote or "", request.headers), request.match_info.get("model"))
    if route.refuses_foreign_pages and not _is_for_the_page(route, control, request):
        any_host = (ANY_HOST,) if control.options.multi_model else ()
        refuse_foreign_pages(request, [*dispatcher.allowed_hosts, *any_host], proven=permit.is_proven)
    return permit


def _is_for_the_page(route: Route, control: AccessControl, request: web.Request) -> bool:
    """Return whether the request comes from a page that the operator has admitted to client routes."""
    rules = control.cross_origin
    return rules is not None and route.is_for_clients and is_admitted(rules, request)


def reach_of(request: web.Request) -> Reach:
    """Return the routes that the client can reach at this address."""
    return request.app[ACCESS].reach(Caller(request.remote or "", request.headers))
