"""The credentials of a request: an API key, or the management token."""

import hashlib
import hmac
import secrets
from collections.abc import Iterator, Mapping

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


def shown_credentials(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield each credential in a request's headers or in a gRPC call's metadata."""
    scheme, _, credential = headers.get("Authorization", "").strip().partition(" ")
    if scheme.lower() == BEARER and credential.strip():
        yield credential.strip()
    yield from (given.strip() for name in KEY_HEADERS if (given := headers.get(name, "")).strip())
