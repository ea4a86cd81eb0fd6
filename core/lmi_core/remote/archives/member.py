"""A file or a folder of an archive."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from lmi_core.errors import ConfigurationError
from lmi_core.remote.archives.names import quote

OTHER_KIND = "a link or a device, neither a file nor a folder"


class Member(NamedTuple):
    """A file, whose `content` can be read once, in order, or a folder without content."""

    name: str
    size: int
    content: Iterator[bytes] | None


def refuse_kind(name: str, kind: str, remedy: str = "pack the files themselves") -> ConfigurationError:
    """Return the error for a member that is neither a file nor a folder."""
    return ConfigurationError(f"the archive cannot be unpacked: {quote(name)} is {kind}: {remedy}")


@contextmanager
def convert_errors(kinds: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turn errors of these kinds into a ConfigurationError."""
    try:
        yield
    except kinds as error:
        raise damage_error(str(error) or type(error).__name__) from error


def damage_error(why: object) -> ConfigurationError:
    """Return the error for a truncated archive."""
    return ConfigurationError(f"the archive is damaged or cut off ({why}): pack or download it again")
