"""The files of the pages: HTML, style sheets and JavaScript modules in `static/`."""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

STATIC = Path(__file__).with_name("static")
INDEX = "index.html"
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


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
