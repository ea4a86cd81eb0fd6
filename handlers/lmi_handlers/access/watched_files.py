"""Files that are reloaded when they change: API keys and certificates."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from lmi_core.errors import ConfigurationError

logger = logging.getLogger(__name__)

INTERVAL = 1.0  # seconds between checks

Version = tuple[int, int, int] | None


class Watched(NamedTuple):
    """Files and their reader, which raises ConfigurationError if they are invalid."""

    files: Sequence[Path]
    read: Callable[[], None]


async def watch(watched: Sequence[Watched], interval: float = INTERVAL) -> None:
    """Reload files when they change, until cancelled. Invalid files are logged and have no effect."""
    versions = [_versions(each) for each in watched]
    while watched:
        await asyncio.sleep(interval)
        for index, each in enumerate(watched):
            found = await asyncio.to_thread(_versions, each)  # the file may be on a host that does not respond
            if found != versions[index]:
                versions[index] = found
                try:
                    each.read()
                except ConfigurationError as error:
                    logger.error("%s. The previous contents stay in use", error.message)


def _versions(each: Watched) -> list[Version]:
    return [_version(file) for file in each.files]


def _version(file: Path) -> Version:
    try:
        found = file.stat()
    except OSError:  # it is being replaced; if the error persists, reading it reports the cause
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
