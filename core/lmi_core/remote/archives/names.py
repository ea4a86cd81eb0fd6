"""The names in an archive, as paths below the target folder."""

import re
from pathlib import PurePosixPath

from lmi_core.errors import ConfigurationError

MAX_DEPTH = 32  # folders
MAX_NAME = 255  # bytes of a file name, on common file systems
MAX_PATH = 1024  # bytes
SHOWN = 80  # characters of a name quoted in a message
_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


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
