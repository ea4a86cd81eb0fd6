"""Access by pages of other web sites (CORS): browsers only show them answers with certain headers. aiohttp-cors needs
its own declaration of each route, and supports neither operator routes nor patterns of origins. The protocol:
https://fetch.spec.whatwg.org/#http-cors-protocol
"""

import logging
from collections.abc import Collection

from aiohttp import web
from aiohttp.web_urldispatcher import AbstractRoute

from lmi_core.payloads.payload import quote
from lmi_handlers.access.cross_origin import CrossOrigin, is_token
from lmi_handlers.http.connections.connections import Responder
from lmi_handlers.http.no_such_route import error_of_path

logger = logging.getLogger(__name__)

MAX_AGE = 600  # seconds for which a browser caches the permission
MAX_HEADERS = 100  # request headers that a page can ask for
# Headers that pages may read without permission, and headers about the connection and caches.
READ_ANYWAY = frozenset(
    {
        *("cache-control", "content-language", "content-length", "content-type", "expires", "last-modified", "pragma"),
        *("connection", "date", "server", "transfer-encoding", "vary"),
    }
)


class CrossOriginAnswers:
    """The headers and preflight answers for pages of other web sites."""

    def __init__(self, rules: CrossOrigin, shared: Collection[AbstractRoute]) -> None:
        """Follow the rules for the `shared` routes, and none of the others."""
        self._rules = rules
        self._shared = shared

    def install(self, application: web.Application) -> None:
        application.middlewares.append(self.answer_preflight)
        application.on_response_prepare.append(self.add_headers)

    @web.middleware
    async def answer_preflight(self, request: web.Request, handler: Responder) -> web.StreamResponse:
        """Answer a browser that asks whether a page may send a request; such requests carry no API key."""
        method = request.headers.get("Access-Control-Request-Method", "")
        if request.method != "OPTIONS" or "Origin" not in request.headers or not is_token(method):
            return await handler(request)
        found = await request.app.router.resolve(request.clone(method=method))
        if found.route not in self._shared:
            return await handler(request)
        given = ",".join(request.headers.getall("Access-Control-Request-Headers", ()))
        names = [name.strip() for name in given.split(",", MAX_HEADERS)]
        asked = [name for name in names if is_token(name)]
        if (fault := self._fault(request, method, asked)) is not None:
            logger.info("the preflight of a page is refused: %s", fault)
            return error_of_path(request, fault, 403)
        return web.Response(status=204, headers=self._permission(request, asked))

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Let the page of an admitted origin read the answer and its headers."""
        if request.match_info.route not in self._shared:
            return
        headers = response.headers
        if self._rules.origins is not None:
            headers.add("Vary", "Origin")
        if is_admitted(self._rules, request):
            headers.update(self._admission(request))
            if named := [name for name in dict.fromkeys(headers) if _is_to_expose(name)]:
                headers["Access-Control-Expose-Headers"] = ", ".join(named)

    def _fault(self, request: web.Request, method: str, asked: list[str]) -> str | None:
        """Return the reason why a page may not send the request of its browser."""
        given = ", ".join(request.headers.getall("Origin"))
        if not is_admitted(self._rules, request):
            return f"pages of {quote(given)} may not use this server: cors_allowed_origin lists those that may"
        if method not in self._rules.methods:
            return f"pages of other web sites may not use the method {quote(method)}: see cors_allowed_methods"
        if refused := self._rules.refused_headers(asked):
            return f"pages of other web sites may not send the header {quote(refused[0])}: see cors_allowed_headers"
        return None

    def _admission(self, request: web.Request) -> dict[str, str]:
        if self._rules.origins is None:
            return {"Access-Control-Allow-Origin": "*"}
        headers = {"Access-Control-Allow-Origin": request.headers["Origin"]}
        if self._rules.allow_credentials:
            headers["Access-Control-Allow-Credentials"] = "true"
        return headers

    def _permission(self, request: web.Request, asked: list[str]) -> dict[str, str]:
        # Names instead of `*`, which does not include Authorization.
        headers = {
            "Access-Control-Allow-Methods": ", ".join(self._rules.methods),
            "Access-Control-Max-Age": str(MAX_AGE),
            "Vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
            **self._admission(request),
        }
        return headers if not asked else {**headers, "Access-Control-Allow-Headers": ", ".join(asked)}


def is_admitted(rules: CrossOrigin, request: web.Request) -> bool:
    """Return whether the request comes from a page of an admitted origin."""
    origins = request.headers.getall("Origin", ())
    return len(origins) == 1 and rules.admits(origins[0])


def _is_to_expose(name: str) -> bool:
    return name.lower() not in READ_ANYWAY and not name.lower().startswith("access-control-")
