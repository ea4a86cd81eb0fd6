"""The management token, in a file that may change."""

import logging
import os
from pathlib import Path

from lmi_core.errors import ConfigurationError
from lmi_handlers.access.credentials import Secret

logger = logging.getLogger(__name__)

KEY = "management_token_file"


class TokenFile:
    """The current secret in a file."""

    def __init__(self, file: Path) -> None:
        """Read the file. Raise ConfigurationError if it cannot be read, or is empty."""
        self.file = file
        self._secret = self._read()

    def matches(self, digest: bytes) -> bool:
        """Return whether the digest is the secret's, in constant time."""
        return self._secret.matches(digest)

    def read_again(self) -> None:
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
