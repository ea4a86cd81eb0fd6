"""The errors of copying a remote model, other than those in its name."""

from lmi_core.errors import ConfigurationError


class Unreachable(ConfigurationError):
    """The source is unreachable, so only an existing copy on this host can be served; a later start may succeed."""


class ChangedDuringCopy(Exception):
    """An object was replaced or deleted during its download."""


def first_line(error: BaseException) -> str:
    """Return the first line of a library's error."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
