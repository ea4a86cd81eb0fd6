"""The answers to requests without a matching route."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import orjson
from aiohttp import web

from lmi_core.errors.did_you_mean import did_you_mean
from lmi_core.handler import Route
from lmi_core.registry.dispatcher import Dispatcher
from lmi_handlers.base.anthropic_errors import REQUEST_ID_HEADER as ANTHROPIC_HEADER
from lmi_handlers.base.anthropic_errors import error_content, type_of_status
from lmi_handlers.base.plain_handler import PlainHandler
from lmi_handlers.base.statuses import NO_ROUTE, front_end_error
from lmi_handlers.fields.request_headers import REQUEST_ID_HEADER, request_id
from lmi_handlers.http.exchange import Exchange
from lmi_handlers.telemetry.request_end import RequestEnd

OPENAI_PREFIX = "/v1"  # of OpenAI's routes, which clients with a wrong base URL omit
OPENAI_PATHS = f"{OPENAI_PREFIX}/"  # clients of these paths read OpenAI's error format
ANTHROPIC_PATHS = "/v1/messages/"  # clients of these paths read Anthropic's error format
ONLY_ERROR_PATHS = ("/api/", "/v2/")  # errors of Ollama and Triton have a single member, `error`
OPENAI_CODES = {404: "unknown_url", 405: "method_not_supported"}


class NoDialect(PlainHandler):
    """The handler of requests that match no route."""

    name: ClassVar[str] = ""
    routes: ClassVar[tuple[Route, ...]] = ()


async def no_such_route(dispatcher: Dispatcher, request: web.Request) -> web.Response:
    """Answer a request that matches no route, and log it."""
    exchange = Exchange(NoDialect(), Route("/"), request)
    ending = RequestEnd(dispatcher, exchange, request.rel_url.raw_path, counts=False)
    response = await _refuse(request)
    exchange.request_id = response.headers[REQUEST_ID_HEADER]
    ending.note_answer(response.status)
    return response


async def _refuse(request: web.Request) -> web.Response:
    """Answer 404 with the nearest route, or 405 for a wrong method; answer OPTIONS on LMI's paths like DJLServing."""
    methods: set[str] = set()
    for resource in request.app.router.resources():
        # An action of another API rather than a name
        if request.method != "POST" or not resource.canonical.endswith("}"):
            methods |= (await resource.resolve(request))[1] - {"*"}
    allowed = ", ".join(sorted(methods))
    if methods and request.method == "OPTIONS" and not request.path.startswith((OPENAI_PATHS, *ONLY_ERROR_PATHS)):
        return web.json_response({}, headers={"Allow": allowed, REQUEST_ID_HEADER: request_id(request.headers)})
    if methods:
        message = f"{request.path} supports {allowed}, not {request.method}."
    else:
        message = f"there is no route {request.method} {request.path}.{did_you_mean(request.path, _routes(request))}"
    status = 405 if methods else 404
    if methods and request.headers.get("Upgrade", "").lower() == "websocket":
        status = 426  # makes Codex use HTTP; with any other status, it retries for seconds
    headers = {"Allow": allowed} if methods else {}
    headers |= {"Upgrade": "HTTP/1.1"} if status == 426 else {}
    return error_of_path(request, f"{message} GET /docs lists all routes", status, headers)


def _routes(request: web.Request) -> list[str]:
    known = (resource.canonical for resource in request.app.router.resources())
    return [path for path in known if path == "/" or not path.endswith("/")]


def error_of_path(
    request: web.Request, message: str, status: int, further: Mapping[str, str] = MappingProxyType({})
) -> web.Response:
    """Return the error in the form of the path's dialect, with the id of the request and further headers."""
    path, name = f"{request.path}/", request_id(request.headers)
    content: dict[str, object] = front_end_error(message, status, NO_ROUTE if status == 404 else None)
    headers = {REQUEST_ID_HEADER: name}
    if path.startswith(ANTHROPIC_PATHS):
        content = error_content(type_of_status(status), message, name)
        headers[ANTHROPIC_HEADER] = name
    elif path.startswith(ONLY_ERROR_PATHS):
        content = {"error": message}
    elif path.startswith(OPENAI_PATHS) or (status == 404 and OPENAI_PREFIX + request.path in _routes(request)):
        code = OPENAI_CODES.get(status)
        content = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}
    body = orjson.dumps(content)
    return web.Response(status=status, body=body, content_type="application/json", headers={**headers, **further})
