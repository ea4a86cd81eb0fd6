"""The location of a remote model: an `s3://` URL, an archive, or a model id of the Hugging Face hub."""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from lmi_core.errors import ConfigurationError

S3 = "s3://"
WEB = re.compile(r"https?://", re.IGNORECASE)
GGUF = ".gguf"  # llama.cpp's format: a single file, which is converted as archives are unpacked
ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar", GGUF)
OTHER_ARCHIVES = (".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".7z", ".rar")
HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?(:[\w.-]+)?", re.ASCII)  # may end with the quantization of a GGUF file
BUCKET = re.compile(r"[\w.:/-]{3,255}", re.ASCII)  # a name, or an access point's ARN


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model to copy to this host; with `everything`, files in formats that no backend reads are copied too."""

    source: str  # an `s3://` URL, the URL or the absolute path of an archive, or a hub id
    revision: str | None = None  # on the hub
    everything: bool = False
    only_tokenizer: bool = False  # on the hub: leave out the weights

    @property
    def in_s3(self) -> bool:
        return is_s3(self.source)

    @property
    def is_archive(self) -> bool:
        """Whether the location is an archive: one file, which is unpacked."""
        return is_web(self.source) or (is_archive_name(self.source) and (self.in_s3 or self.source.startswith("/")))

    @property
    def on_hub(self) -> bool:
        return not self.in_s3 and not self.is_archive

    @property
    def repository(self) -> str:
        """The hub id without a quantization."""
        return self.source.partition(":")[0]

    @property
    def quantization(self) -> str:
        """The quantization in the hub id, which names a GGUF file; empty without one."""
        return self.source.partition(":")[2] if self.on_hub else ""

    def __str__(self) -> str:
        with_revision = self.on_hub and self.revision is not None
        return f"{self.source} ({self.revision})" if with_revision else without_secrets(self.source)


@dataclass(frozen=True, slots=True)
class S3Location:
    """The objects whose keys start with `prefix`, as files; the rest of a key after `folder` is the file's path."""

    bucket: str
    prefix: str
    folder: str

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL as `s5cmd sync` does for LMI: a folder with or without its last slash, or `start-of-keys*`.

        Raise ConfigurationError if the URL is invalid.
        """
        bucket, _, path = url.removeprefix(S3).partition("/")
        if bucket.startswith("arn:"):  # arn:aws:s3:region:account:accesspoint/name/key
            name, _, path = path.partition("/")
            bucket = f"{bucket}/{name}"
        if not url.startswith(S3) or not BUCKET.fullmatch(bucket) or "\0" in path:
            raise ConfigurationError(f"{url} is not an S3 URL: give s3://bucket/folder/")
        if is_archive_name(path):  # a single object
            return cls(bucket, path, path[: path.rfind("/") + 1])
        if path.endswith("*"):
            prefix = path.removesuffix("*")
            return cls(bucket, prefix, prefix[: prefix.rfind("/") + 1])
        folder = path if not path or path.endswith("/") else f"{path}/"
        return cls(bucket, folder, folder)

    @property
    def name(self) -> str:
        """The name of the model directory: the folder's, or the bucket's."""
        return next(name for name in reversed([self.bucket, *self.folder.split("/")]) if name not in ("", ".", ".."))


def is_s3(source: str) -> bool:
    return source.startswith(S3)


def is_web(source: str) -> bool:
    """Return whether the source is the URL of an archive on a web server."""
    return WEB.match(source) is not None


def is_archive_name(name: str) -> bool:
    """Return whether a path or URL has the ending of a supported archive."""
    return name.lower().endswith(ARCHIVES)


def must_be_copied(source: str) -> bool:
    """Return whether a source is a URL, or an archive on this host, instead of a folder."""
    return is_s3(source) or is_web(source) or is_archive(Path(source))


def is_archive(path: Path) -> bool:
    """Return whether the path is a file with the ending of an archive; False for names that the system rejects."""
    with suppress(OSError, ValueError):
        return is_archive_name(path.name) and path.is_file()
    return False


def archive_name(source: str) -> str:
    """Return the name of an archive's model: the last part of its URL or path, without the ending.

    Raise ConfigurationError if the URL is invalid.
    """
    host, path = _host_and_path(source) if "://" in source else ("", source)
    name = path.rstrip("/").rpartition("/")[2] or host
    ending = next((each for each in ARCHIVES if name.lower().endswith(each)), "")
    return name[: len(name) - len(ending)] or name


def _host_and_path(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        if is_web(url) and (not parts.hostname or parts.port == 0):  # accessing an invalid port raises the same
            raise ValueError
    except ValueError:
        raise ConfigurationError(
            f"{without_secrets(url)} is not a valid URL: check its host, and the port if it has one"
        ) from None
    return parts.hostname or "", unquote(parts.path)


def without_secrets(source: str) -> str:
    """Return a source for messages: web addresses without passwords and query, which may be a signature."""
    if not is_web(source):
        return source
    scheme, _, rest = source.partition("://")
    address, _, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{address.rpartition('@')[2]}/{path}"


def is_hub_id(source: str) -> bool:
    """Return whether the source has the form of a hub id, perhaps with a quantization: `org/name:Q4_K_M`."""
    return HUB_ID.fullmatch(source) is not None
