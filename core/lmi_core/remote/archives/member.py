"""A file or a folder of an archive, with its name as a path below the target folder, and the errors of archives."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import NamedTuple

from lmi_core.errors import ConfigurationError

OTHER_KIND = "a link or a device, neither a file nor a folder"
MAX_DEPTH = 32  # folders
MAX_NAME = 255  # bytes of a file name, on common file systems
MAX_PATH = 1024  # bytes
SHOWN = 80  # characters of a name quoted in a message
_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


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


def member_path(name: str, *, is_folder: bool) -> PurePosixPath:
    """Return the path of a name; "." for the top folder. Raise ConfigurationError if it cannot be unpacked."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise name_error(name, "is not valid UTF-8") from None
    if _CONTROL.search(name):
        raise name_error(name, "contains a control character")
    if name.startswith("/") or "\\" in name or _DRIVE.match(name):
        raise name_error(name, "is not relative to the archive, or has a backslash")
    path = PurePosixPath(name)
    if ".." in path.parts:
        raise name_error(name, "points outside the archive")
    if len(path.parts) > MAX_DEPTH or size > MAX_PATH or any(len(part.encode()) > MAX_NAME for part in path.parts):
        raise name_error(
            name, f"is too long: at most {MAX_PATH} bytes in {MAX_DEPTH} parts of {MAX_NAME} bytes are unpacked"
        )
    if not path.parts and not is_folder:
        raise name_error(name, "is the name of a folder, and of a file")
    return path


def quote(name: str) -> str:
    """Return a name in a form that is safe in messages."""
    return ascii(name if len(name) <= SHOWN else f"{name[:SHOWN]}...")


def name_error(name: str, why: str) -> ConfigurationError:
    """Return the error for an invalid name."""
    return ConfigurationError(f"the archive cannot be unpacked: {quote(name)} {why}: pack the model directory again")
