"""The API keys of clients, from a file that may change and from the environment."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lmi_core.errors import ConfigurationError
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_handlers.access.credentials import Secret, digest_of

logger = logging.getLogger(__name__)

HASHED = "sha256:"  # precedes the digest of a key that is not itself in the file
COMMENT = "#"
DIGITS = 64  # in a digest
REQUESTS = "requests_per_minute"
RUNNING = "max_concurrent_requests"
MAX_DIGITS = 9
MIN_LENGTH = 16  # of a key that cannot be guessed


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits of one key; None means unlimited."""

    requests_per_minute: int | None = None
    max_concurrent_requests: int | None = None


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key, and its name in the log, which several keys of one client can share."""

    name: str
    secret: Secret
    limits: KeyLimits
    holder: str  # identifies the client: it stays the same as long as a line keeps its name, or its key
    warning: str | None = None  # about a weak key; it does not repeat the key


class Line(NamedTuple):
    """The text of a key, its place for messages, and the key's name if the text has none."""

    place: str
    name: str
    text: str


class ApiKeys:
    """The keys of a server, including the current keys in the file; `warnings` has a line for each weak one."""

    def __init__(self, given: Sequence[str] = (), file: Path | None = None, limits: KeyLimits | None = None) -> None:
        """Use the given keys and those in the file. Raise ConfigurationError, which lists every invalid line."""
        self.file = file
        self._limits = limits or KeyLimits()
        self._given = [
            Line(f"api_keys, key {index}", f"key-{index}", text) for index, text in enumerate(given, start=1)
        ]
        self.warnings: list[str] = []
        self._keys = self._read()
        self.num_holders = self._count_holders()

    def find(self, credentials: Iterable[str]) -> ApiKey | None:
        """Return the key among the credentials, in constant time."""
        found = None
        for digest in map(digest_of, credentials):
            for key in self._keys:
                if key.secret.matches(digest) and found is None:
                    found = key
        return found

    def reload(self) -> None:
        """Use the file's current keys. Raise ConfigurationError, and keep the old keys, if the file is invalid."""
        self._keys = self._read()
        self.num_holders = self._count_holders()
        logger.info("%s was read again: %d API keys in all", self.file, len(self._keys))
        for warning in self.warnings:
            logger.warning("%s", warning)

    def _count_holders(self) -> int:
        return len({key.holder for key in self._keys})

    def _read(self) -> list[ApiKey]:
        keys, faults, seen = list[ApiKey](), list[str](), dict[str, tuple[str, KeyLimits]]()
        warnings = list[str]()
        for line in [*self._given, *([] if self.file is None else _lines_of(self.file))]:
            try:
                key = _read_line(line, self._limits)
            except ConfigurationError as error:
                faults.append(f"{line.place}: {error.message}")
                continue
            place, limits = seen.setdefault(key.holder, (line.place, key.limits))
            if limits != key.limits:
                faults.append(f"{line.place}: the limits of {key.name} differ from those in {place}")
            keys.append(key)
            if key.warning is not None:
                warnings.append(f"{line.place}: {key.warning}")
        if faults:
            raise ConfigurationError("\n".join(faults))
        if not keys:
            logger.warning("%s has no API key: requests of clients are refused", self.file)
        self.warnings = warnings
        return keys


def _lines_of(file: Path) -> list[Line]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "it must be UTF-8 text"
        raise ConfigurationError(f"api_keys_file {file} cannot be read: {reason}") from None
    return [
        Line(f"api_keys_file {file}, line {number}", f"line-{number}", line)
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.lstrip().startswith(COMMENT)
    ]


def _read_line(line: Line, limits: KeyLimits) -> ApiKey:
    """Return the key of a line, `[NAME] KEY [LIMIT=NUMBER]...`. No message may repeat the key."""
    words = line.text.split()
    options = dict(word.split("=", 1) for word in words if word.startswith((f"{REQUESTS}=", f"{RUNNING}=")))
    named = [word for word in words if not word.startswith((f"{REQUESTS}=", f"{RUNNING}="))]
    for hint in (did_you_mean(word.partition("=")[0], (REQUESTS, RUNNING)) for word in named if "=" in word):
        if hint:
            raise ConfigurationError(f"this limit is not known.{hint}")
    if not 1 <= len(named) <= 2:
        raise ConfigurationError(
            f"a line must be [NAME] KEY, and then {REQUESTS}=NUMBER or {RUNNING}=NUMBER. Given: {len(named)} "
            f"words besides the limits"
        )
    secret, is_named = _secret(named[-1]), len(named) == 2
    # Line numbers do not identify clients: when a line is removed, the next one takes its number.
    holder = named[0] if is_named else f"unnamed {secret.alias}"
    warning = _warning(named[-1], is_named=is_named)
    return ApiKey(named[0] if is_named else line.name, secret, _limits(options, limits), holder, warning)


def _warning(key: str, *, is_named: bool) -> str | None:
    if len(key) >= MIN_LENGTH:
        return None
    short = f"the key has fewer than {MIN_LENGTH} characters, and may be guessed"
    return short if is_named else f"{short}: a single word in a line is the key itself, not the name of its holder"


def _secret(text: str) -> Secret:
    if not text.startswith(HASHED):
        return Secret.of(text)
    digits = text.removeprefix(HASHED)
    try:
        digest = bytes.fromhex(digits)
    except ValueError:
        digest = b""
    if len(digits) != DIGITS or not digest:
        raise ConfigurationError(f"{HASHED} must be followed by {DIGITS} hexadecimal digits, the key's digest")
    return Secret(digest)


def _limits(options: Mapping[str, str], defaults: KeyLimits) -> KeyLimits:
    return KeyLimits(
        count(REQUESTS, options[REQUESTS]) if REQUESTS in options else defaults.requests_per_minute,
        count(RUNNING, options[RUNNING]) if RUNNING in options else defaults.max_concurrent_requests,
    )


def count(name: str, text: str) -> int:
    """Parse a number of at least 1. Raise ConfigurationError, with this name, if it is not one."""
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS and int(text) > 0):
        raise ConfigurationError(f"{name} must be an integer from 1 to 999999999. Given: {text}")
    return int(text)
