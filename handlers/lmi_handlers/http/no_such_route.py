"""The answers to requests that no route takes."""

from collections.abc import Iterable

import orjson
from aiohttp import web

from lmi_core.did_you_mean import did_you_mean

OPENAI_PATHS = "/v1/"  # whose clients read errors in OpenAI's form
OPENAI_CODES = {404: "unknown_url", 405: "method_not_supported"}


async def no_such_route(request: web.Request) -> web.Response:
    """Answer 404 with the nearest route, or 405 when only the method is wrong."""
    methods: set[str] = set()
    for resource in request.app.router.resources():
        methods |= (await resource.resolve(request))[1] - {"*"}
    allowed = ", ".join(sorted(methods))
    if methods:
        message = f"{request.path} takes {allowed}, not {request.method}."
    else:
        paths = _shown_paths(request.app)
        message = f"there is no route {request.method} {request.path}.{did_you_mean(request.path, paths)}"
    status = 405 if methods else 404
    content = _error(request.path, f"{message} GET /docs shows all", status)
    headers = {"Allow": allowed} if methods else {}
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json", headers=headers)


def _shown_paths(application: web.Application) -> Iterable[str]:
    """Return the routes' paths, but not those that are the same with a slash at the end."""
    paths = [resource.canonical for resource in application.router.resources()]
    return [path for path in paths if path == "/" or not path.endswith("/")]


def _error(path: str, message: str, status: int) -> dict[str, object]:
    if not f"{path}/".startswith(OPENAI_PATHS):
        return {"error": message, "code": status}
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": OPENAI_CODES[status]}
    return {"error": error}
