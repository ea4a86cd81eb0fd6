"""The handler of the web pages.

A page is a folder of `static/` with an index.html; `shared/` contains common files. There is no build step, and nothing
is loaded from other hosts.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from typing_extensions import TypedDict

from lmi_core.calls.access import Access
from lmi_core.calls.answer import json_answer
from lmi_core.calls.answer_form import TEXT
from lmi_core.handler import Answer, AnswerForm, Call, Route, reading
from lmi_core.served_model import ServedModels
from lmi_handlers.base.plain_handler import PlainHandler

STATIC = Path(__file__).with_name("static")
INDEX = "index.html"
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
NOT_CHANGED = 304
ELSEWHERE = 307
MOVED = 308
CHAT = "chat"
DOCS = "docs"
CONSOLE = "console"
HTML = "text/html"
# Scripts and styles only from this server; images also from the page itself, which previews images to send.
POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Cache-Control": "no-cache",  # revalidate each time, which is cheap with the ETag
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
PAGE = (AnswerForm(None, HTML, (200, NOT_CHANGED)), AnswerForm(None, TEXT, (200, ELSEWHERE)))  # 200: Ollama's dialect


class StaticFile(NamedTuple):
    """A file to send."""

    content_type: str
    body: bytes
    tag: str  # the ETag, which changes with the body


@lru_cache(maxsize=1)
def static_files() -> Mapping[tuple[str, str], StaticFile]:
    """Return the files by page (or `shared`) and file name."""
    found = (path for path in STATIC.glob("*/*") if path.suffix in CONTENT_TYPES)
    return {(path.parent.name, path.name): _read(path) for path in sorted(found)}


def _read(path: Path) -> StaticFile:
    body = path.read_bytes()
    return StaticFile(CONTENT_TYPES[path.suffix], body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


ReachedPages = TypedDict("ReachedPages", {"pages": list[Literal["chat", "docs", "console"]]})
FILES = tuple(
    AnswerForm(None, content_type.partition(";")[0], (200, NOT_CHANGED)) for content_type in CONTENT_TYPES.values()
)


async def chat_page(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with the chat page, or redirect clients with only management access to the console."""
    if not call.reach.generates:
        headers = {**HEADERS, "Location": CONSOLE, "Vary": "Accept"}
        return Answer(ELSEWHERE, "text/plain", b"here is the console: /console\n", headers=headers)
    answer = _answer(static_files()[CHAT, INDEX], call)
    return Answer(answer.status, answer.content_type, answer.body, headers={**answer.headers, "Vary": "Accept"})


def _page(name: str, summary: str, access: Access) -> tuple[Route, Route]:
    """Return the routes of a page: the one with a trailing slash redirects to the other, which relative links need."""

    async def page(call: Call, dispatcher: ServedModels) -> Answer:
        return _answer(static_files()[name, INDEX], call)

    async def moved(call: Call, dispatcher: ServedModels) -> Answer:
        headers = {**HEADERS, "Location": f"../{name}"}
        return Answer(MOVED, "text/plain", f"the page is /{name}\n".encode(), headers=headers)

    page_form, moved_form = AnswerForm(None, HTML, (200, NOT_CHANGED)), AnswerForm(None, TEXT, (MOVED,))
    return (
        reading(f"/{name}", page, summary, page_form, moved_form, access=access),
        reading(f"/{name}/", moved, f"Leads to /{name}", moved_form, access=access),
    )


async def list_pages(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with the names of the pages that the client can reach, so that pages link only to these."""
    reached = {CHAT: call.reach.generates, DOCS: True, CONSOLE: call.reach.manages}
    return json_answer({"pages": [name for name, is_reached in reached.items() if is_reached]})


async def page_file(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with a file of a page, or a shared one."""
    found = static_files().get((call.path_parameters["page"], call.path_parameters["file"]))
    if found is None:
        return json_answer({"error": f"no page has the file {call.path}. The pages begin at /", "code": 404}, 404)
    return _answer(found, call)


def _answer(file: StaticFile, call: Call) -> Answer:
    """Return the answer with the file, or 304 if the client has it."""
    headers = {**HEADERS, "ETag": file.tag}
    known = [tag.strip().removeprefix("W/") for tag in call.headers.get("If-None-Match", "").split(",")]
    if file.tag in known or known == ["*"]:
        return Answer(NOT_CHANGED, file.content_type, b"", headers=headers)
    return Answer(200, file.content_type, file.body, headers=headers)


class PagesHandler(PlainHandler):
    """The web pages; they use the server's other routes."""

    name: ClassVar[str] = "pages"
    routes: ClassVar[tuple[Route, ...]] = (
        Route(
            "/",
            "GET",
            chat_page,
            "A page to chat with the models, for browsers; for other clients, a sign that a server is running",
            media_type=HTML,
            access=Access.EVERYBODY,
            answers=PAGE,
        ),
        *_page(DOCS, "A page of this API: what to try first, and every route", Access.EVERYBODY),
        *_page(CONSOLE, "A page to manage the models: their state, what they do, and errors", Access.CONSOLE),
        reading(
            "/pages",
            list_pages,
            "The names of the pages that this client can reach at this address",
            AnswerForm(ReachedPages),
            access=Access.EVERYBODY,
        ),
        Route(
            "/pages/{page}/{file}",
            "GET",
            page_file,
            "A file of the pages for browsers",
            is_polled=True,
            access=Access.EVERYBODY,
            answers=FILES,
        ),
    )
