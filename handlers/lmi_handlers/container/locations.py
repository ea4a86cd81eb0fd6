"""Resolution of a model's URL to a local directory."""

import errno
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lmi_core.configuration.location import (
    OTHER_ARCHIVES,
    S3Location,
    archive_name,
    is_archive,
    is_archive_name,
    is_s3,
    is_web,
)
from lmi_core.errors import ConfigurationError
from lmi_handlers.container.declarations import COMMAND_LINE, begins

WAYS = (
    "give the path of a model directory or of an archive, an s3:// URL, the URL of an archive, or the id of a model of "
    "the Hugging Face hub (org/name)"
)
OF_HUB = " on the command line or in HF_MODEL_ID"  # the places for such an id

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:", re.I)  # at least two letters, because one is a Windows drive


Fetch = Callable[[str], Path]  # returns the local folder of a URL or an archive; raises ConfigurationError


def local_directory(url: str, source: str, fetch: Fetch) -> Path:
    """Return the directory of a path or a URL, unpacking archives.

    Raise ConfigurationError if it does not exist or the URL is unsupported.
    """
    if is_s3(url) or is_web(url):
        return fetch(url)
    path = local_path(url, source)
    if not exists(path):
        where = "" if source == COMMAND_LINE else OF_HUB
        raise ConfigurationError(f"{begins(source)}{url} does not exist: {WAYS}{where}")
    if path.is_dir():
        return path
    if is_archive(path):
        return fetch(str(path))
    if path.is_file() and path.name.lower().endswith(OTHER_ARCHIVES):
        raise ConfigurationError(
            f"{begins(source)}{url} is an archive of a kind that is not supported: pack it as .zip, .tar.gz or .tar"
        )
    raise ConfigurationError(f"{begins(source)}{url} is a file: give the path of the model directory that contains it")


def exists(path: Path) -> bool:
    """Return whether a file or folder exists; False for names that are too long for the system."""
    try:
        return path.exists()
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return False


def inferred_name(url: str, directory: Path) -> str:
    """Return the name for a model without one: the last part of its URL, or the folder's name."""
    if is_web(url) or is_archive_name(url):
        return archive_name(url)
    if is_s3(url):
        return S3Location.parse(url).name
    parts = [part for part in unquote(urlsplit(url).path).split("/") if part]
    return parts[-1] if _SCHEME.match(url) and not exists(Path(url)) and parts else directory.resolve().name


def name_of_url(url: str) -> str:
    """Return the name of a model registered without one: the URL's last part, without an archive's ending."""
    if is_web(url) or is_archive_name(url):
        return archive_name(url)
    path = urlsplit(url).path if _SCHEME.match(url) and not exists(Path(url)) else url
    return unquote(path).rstrip("/").rpartition("/")[2]


def local_path(url: str, source: str) -> Path:
    """Return the path of a path or a `file:` URL. Raise ConfigurationError for other URLs."""
    if not _SCHEME.match(url) or exists(Path(url)):
        return Path(url)
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise ConfigurationError(
            f"{begins(source)}{url}: models cannot be fetched from {parts.scheme}://: give a directory or an archive "
            "on this host, as a path or as file:///path, the https:// URL of an archive, or s3://bucket/folder/"
        )
    if parts.query:
        raise ConfigurationError(
            f"{begins(source)}{url}: the query after `?` is not supported: put its settings into the model's "
            "serving.properties"
        )
    return Path(unquote(parts.path))
