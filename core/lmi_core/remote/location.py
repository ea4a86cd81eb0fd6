"""The location of a remote model: an `s3://` URL, or a model id of the Hugging Face hub."""

import re
from dataclasses import dataclass
from typing import Self

from lmi_core.errors import ConfigurationError

S3 = "s3://"
HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
BUCKET = re.compile(r"[\w.:/-]{3,255}", re.ASCII)  # a name, or an access point's ARN


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model to copy to this host, with `everything` including files in formats that no backend reads."""

    source: str  # an `s3://` URL or a hub id
    revision: str | None = None  # on the hub
    everything: bool = False

    @property
    def in_s3(self) -> bool:
        return is_s3(self.source)

    def __str__(self) -> str:
        return self.source if self.revision is None or self.in_s3 else f"{self.source} ({self.revision})"


@dataclass(frozen=True, slots=True)
class S3Location:
    """The objects whose keys begin with `prefix`, as files; what follows `folder` in a key is the file's path."""

    bucket: str
    prefix: str
    folder: str

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL as `s5cmd sync` does for LMI: a folder with or without its last slash, or `start-of-keys*`.

        Raise ConfigurationError where the URL is invalid.
        """
        bucket, _, path = url.removeprefix(S3).partition("/")
        if bucket.startswith("arn:"):  # arn:aws:s3:region:account:accesspoint/name/key
            name, _, path = path.partition("/")
            bucket = f"{bucket}/{name}"
        if not url.startswith(S3) or not BUCKET.fullmatch(bucket) or "\0" in path:
            raise ConfigurationError(f"{url} is not an S3 URL: give s3://bucket/folder/")
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


def is_hub_id(source: str) -> bool:
    """Return whether the source has the form of a hub id; `org/name:quantization` (GGUF) is left to the engine."""
    return HUB_ID.fullmatch(source) is not None
