"""The names in an archive, as paths below the target folder."""

import re
from unicodedata import normalize

from lmi_core.errors import ConfigurationError

MAX_DEPTH = 32  # folders
MAX_NAME = 255  # bytes of a file name, on common file systems
MAX_PATH = 1024  # bytes
SHOWN = 80  # characters of a name quoted in a message

_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class MemberPaths:
    """The unique paths of an archive's files and folders, also on file systems that ignore case or accents."""

    def __init__(self) -> None:
        # From the form in which names are compared to the name as written, and whether it is a folder
        self._known: dict[str, tuple[str, bool]] = {}

    def __len__(self) -> int:
        """Return the number of files and folders, including parents without their own entries."""
        return len(self._known)

    def add(self, name: str, *, is_folder: bool) -> str:
        """Return the path of a name; "" for the top folder. Raise ConfigurationError if it cannot be unpacked."""
        parts = _parts(name)
        for count in range(1, len(parts) + 1):
            self._add("/".join(parts[:count]), name, is_folder=is_folder or count < len(parts))
        if not parts and not is_folder:
            raise _refused(name, "is the name of a folder, and of a file")
        return "/".join(parts)

    def _add(self, path: str, name: str, *, is_folder: bool) -> None:
        same = normalize("NFC", path).casefold()
        if same not in self._known:
            self._known[same] = (path, is_folder)
            return
        spelled, was_folder = self._known[same]
        if spelled != path:
            raise _refused(name, f"and {shown(spelled)} differ only in case or accents")
        if was_folder != is_folder:
            raise _refused(name, "is the name of a folder, and of a file")
        if not is_folder:
            raise _refused(name, "is there twice")


def _parts(name: str) -> list[str]:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise _refused(name, "is not valid UTF-8") from None
    if _CONTROL.search(name):
        raise _refused(name, "contains a control character")
    if name.startswith("/") or "\\" in name or _DRIVE.match(name):
        raise _refused(name, "is not relative to the archive, or has a backslash")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _refused(name, "points outside the archive")
    if len(parts) > MAX_DEPTH or size > MAX_PATH or any(len(part.encode()) > MAX_NAME for part in parts):
        raise _refused(
            name, f"is too long: at most {MAX_PATH} bytes in {MAX_DEPTH} parts of {MAX_NAME} bytes are unpacked"
        )
    return parts


def shown(name: str) -> str:
    """Return a name in a form that is safe in messages."""
    return ascii(name if len(name) <= SHOWN else f"{name[:SHOWN]}...")


def _refused(name: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"the archive cannot be unpacked: {shown(name)} {why}: pack the model directory again")
