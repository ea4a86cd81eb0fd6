"""Resolution of a model's URL to a local directory."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lmi_core.errors import ConfigurationError
from lmi_core.remote.location import S3Location, is_s3
from lmi_handlers.container.declarations import begins

WAYS = (
    "give the path of a model directory, an s3:// URL, or the id of a model of the Hugging Face hub (org/name) on the"
    " command line or in HF_MODEL_ID"
)
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:", re.I)  # two letters at least: one is a Windows drive


Fetch = Callable[[str], Path]  # returns the local folder of an `s3://` URL; raises ConfigurationError


def local_directory(url: str, source: str, fetch: Fetch) -> Path:
    """Return the directory that a path, a `file:` or an `s3:` URL names.

    Raise ConfigurationError where it does not exist or the URL is of another kind.
    """
    if is_s3(url):
        return fetch(url)
    path = _path(url, source)
    if path.is_dir():
        return path
    if url.endswith(ARCHIVES):
        raise ConfigurationError(f"{begins(source)}{url} is an archive: unpack it and give the folder")
    if path.exists():
        raise ConfigurationError(
            f"{begins(source)}{url} is a file: give the path of the model directory that contains it"
        )
    raise ConfigurationError(f"{begins(source)}{url} does not exist: {WAYS}")


def inferred_name(url: str, directory: Path) -> str:
    """Return the name for a model without one: the last part of its URL, or the folder's name."""
    if is_s3(url):
        return S3Location.parse(url).name
    parts = [part for part in unquote(urlsplit(url).path).split("/") if part]
    return parts[-1] if _SCHEME.match(url) and not Path(url).exists() and parts else directory.resolve().name


def _path(url: str, source: str) -> Path:
    if not _SCHEME.match(url) or Path(url).exists():
        return Path(url)
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise ConfigurationError(
            f"{begins(source)}{url}: models cannot be fetched from {parts.scheme}://: give a directory on this host, "
            "as a path or as file:///path, or one in S3, as s3://bucket/folder/"
        )
    if parts.query:
        raise ConfigurationError(
            f"{begins(source)}{url}: the query after `?` is not supported: put its settings into the model's "
            "serving.properties"
        )
    return Path(unquote(parts.path))
