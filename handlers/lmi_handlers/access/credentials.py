"""The credentials of a request: an API key, or the management token."""

import hashlib
import hmac
import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

from lmi_core.errors import ConfigurationError

logger = logging.getLogger(__name__)

KEY = "management_token_file"
BEARER = "bearer"
_OF_THIS_PROCESS = secrets.token_bytes(32)
KEY_HEADERS = ("x-api-key", "api-key")  # used by Anthropic's clients, and by OpenAI's for Azure


class Secret:
    """A secret. Only its digest is kept, so that no log or traceback can show it."""

    __slots__ = ("_digest",)

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    @classmethod
    def of(cls, text: str) -> "Secret":
        return cls(digest_of(text))

    @property
    def alias(self) -> str:
        """A unique text that reveals nothing about the secret; it differs in each process."""
        return hmac.new(_OF_THIS_PROCESS, self._digest, "sha256").hexdigest()

    def matches(self, digest: bytes) -> bool:
        """Return whether the digest is this secret's, in constant time."""
        return hmac.compare_digest(self._digest, digest)


def digest_of(text: str) -> bytes:
    """Return the digest by which secrets are compared."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()


def find_credentials(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield each credential in a request's headers or in a gRPC call's metadata."""
    scheme, _, credential = headers.get("Authorization", "").strip().partition(" ")
    if scheme.lower() == BEARER and credential.strip():
        yield credential.strip()
    yield from (given.strip() for name in KEY_HEADERS if (given := headers.get(name, "")).strip())


class TokenFile:
    """The current secret in a file."""

    def __init__(self, file: Path) -> None:
        """Read the file. Raise ConfigurationError if it cannot be read, or is empty."""
        self.file = file
        self._secret = self._read()

    def matches(self, digest: bytes) -> bool:
        """Return whether the digest is the secret's, in constant time."""
        return self._secret.matches(digest)

    def reload(self) -> None:
        """Use the file's current secret. Raise ConfigurationError, and keep the old one, if there is none."""
        self._secret = self._read()
        logger.info("%s was read again: management now needs its new token", self.file)

    def _read(self) -> Secret:
        try:
            text = self.file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "it must be UTF-8 text"
            raise ConfigurationError(f"{KEY} {self.file} cannot be read: {reason}") from None
        if not text:
            raise ConfigurationError(f"{KEY} {self.file} is empty")
        return Secret.of(text)
