"""What keeps a remote model from being copied, beside what is wrong with its name."""

from lmi_core.errors import ConfigurationError


class Unreachable(ConfigurationError):
    """No answer over the network; a copy that is on this host already can be served."""


class ChangedMeanwhile(Exception):
    """An object was replaced or deleted while it was downloaded."""


class Cancelled(Exception):
    """Somebody ended the download."""
