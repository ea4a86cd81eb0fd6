"""Limits on unpacking, so that no small archive fills a disk."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from lmi_core.errors import ConfigurationError
from lmi_core.errors.sizes import readable

BYTES_VARIABLE = "LMI_MAX_UNPACKED_BYTES"
FILES_VARIABLE = "LMI_MAX_UNPACKED_FILES"
DEFAULT_BYTES = 10**12
DEFAULT_FILES = 100_000
MAX_RATIO = 100  # weights barely compress
FREE_BYTES = 2**30  # any archive may unpack to this size, for example one with weights of zeros in a test


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum size and number of the files of one archive."""

    max_bytes: int = DEFAULT_BYTES
    max_files: int = DEFAULT_FILES
    max_ratio: int | None = MAX_RATIO  # of the unpacked to the packed size; None if an operator set a size

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        """Read the limits from the environment. Raise ConfigurationError if one is not a number."""
        size, files = _number(environment, BYTES_VARIABLE), _number(environment, FILES_VARIABLE)
        return cls(size or DEFAULT_BYTES, files or DEFAULT_FILES, None if size else MAX_RATIO)

    def check(self, size: int, files: int, archive_size: int) -> None:
        """Raise ConfigurationError if these files are too large or too many."""
        if files > self.max_files:
            raise ConfigurationError(
                f"the archive contains more than {FILES_VARIABLE}={self.max_files} files and folders: set it higher if "
                "the archive is yours"
            )
        if size > self.max_bytes:
            raise ConfigurationError(
                f"the archive unpacks to more than {BYTES_VARIABLE}={self.max_bytes} ({readable(self.max_bytes)}): set "
                "it higher if the archive is yours"
            )
        if self.max_ratio is not None and size > max(FREE_BYTES, self.max_ratio * archive_size):
            raise ConfigurationError(
                f"the archive of {readable(archive_size)} unpacks to more than {self.max_ratio} times its size, "
                f"which only attacks do: set {BYTES_VARIABLE} to a number of bytes if the archive is yours"
            )


def _number(environment: Mapping[str, str], variable: str) -> int | None:
    text = environment.get(variable, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18 and int(text) > 0):
        raise ConfigurationError(f"environment {variable} must be an integer greater than 0. Given: {text}")
    return int(text)
