"""The access options of the server."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from lmi_core.configuration.host_patterns import is_loopback
from lmi_core.errors import ConfigurationError
from lmi_handlers.access.api_keys import ApiKeys
from lmi_handlers.access.certificate import Certificate
from lmi_handlers.access.credentials import Secret, TokenFile
from lmi_handlers.access.cross_origin import CrossOrigin

logger = logging.getLogger(__name__)

INTERVAL = 1.0  # seconds between checks

Version = tuple[int, int, int] | None
UNIX = "unix:"


class WatchedFiles(NamedTuple):
    """Files, the function that reads them or raises ConfigurationError, and a check that runs between changes."""

    files: Sequence[Path]
    read: Callable[[], None]
    check: Callable[[], None] = lambda: None


async def watch(watched: Sequence[WatchedFiles], interval: float = INTERVAL) -> None:
    """Reload files when they change, until cancelled. Invalid files are logged and have no effect."""
    versions = [_versions(each) for each in watched]
    while watched:
        await asyncio.sleep(interval)
        for index, each in enumerate(watched):
            found = await asyncio.to_thread(_versions, each)  # the file may be on a host that does not respond
            read = each.check if found == versions[index] else each.read
            versions[index] = found
            try:
                read()
            except ConfigurationError as error:
                logger.error("%s. The previous contents stay in use", error.message)
            except Exception:  # whatever one file contains, the others are watched
                logger.exception("%s could not be read again", each.files[0])


def _versions(each: WatchedFiles) -> list[Version]:
    return [_version(file) for file in each.files]


def _version(file: Path) -> Version:
    try:
        found = file.stat()
    except OSError:  # it is being replaced; if the error persists, reading it reports the cause
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class ListenAddress(NamedTuple):
    """A host and a port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str | None = None
    is_secure: bool = False  # uses TLS with the server's certificate

    @property
    def is_for_this_host(self) -> bool:
        """Whether only programs on this host can reach the address."""
        return self.path is not None or is_loopback(self.host)

    def __str__(self) -> str:
        if self.path is not None:
            return f"{UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Scope(StrEnum):
    """The routes of an address."""

    ALL = "all"  # the server has only one address
    INFERENCE = "inference"  # management has a separate address
    MANAGEMENT = "management"


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """The operator's access rules; by default, everybody may use the server, and only this host may manage it."""

    api_keys: ApiKeys | None = None  # None: clients do not need keys
    metrics_need_key: bool = False
    certificate: Certificate | None = None  # None: no TLS
    management_address: ListenAddress | None = None  # None: the inference address
    management_token: Secret | TokenFile | None = None
    open_management: bool = False  # other hosts may use management routes that do not name a model
    cross_origin: CrossOrigin | None = None  # None: pages of other web sites cannot read responses
    fixed: str | None = None  # why management routes cannot change anything; None: they can
    multi_model: bool = False  # SageMaker manages the models from another host; their names are not listed

    @property
    def watched(self) -> list[WatchedFiles]:
        """The objects that are reloaded when their files change."""
        keys, certificate, token = self.api_keys, self.certificate, self.management_token
        watched = (
            [] if certificate is None else [WatchedFiles(certificate.files, certificate.reload, certificate.report)]
        )
        if keys is not None and keys.file is not None:
            watched.append(WatchedFiles([keys.file], keys.reload))
        if isinstance(token, TokenFile):
            watched.append(WatchedFiles([token.file], token.reload))
        return watched


DEFAULT_ACCESS = AccessOptions()
