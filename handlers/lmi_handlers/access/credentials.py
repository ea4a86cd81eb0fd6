"""The credentials that a request shows: an API key, or the token of those who manage the server."""

import hashlib
import hmac
import secrets
from collections.abc import Iterator, Mapping

BEARER = "bearer"
_OF_THIS_PROCESS = secrets.token_bytes(32)
KEY_HEADERS = ("x-api-key", "api-key")  # those of Anthropic's clients, and of OpenAI's for Azure


class Secret:
    """A secret of which only the digest is kept, so that no log and no traceback can show it."""

    __slots__ = ("_digest",)

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    @classmethod
    def of(cls, text: str) -> "Secret":
        return cls(digest_of(text))

    @property
    def alias(self) -> str:
        """A text that no other secret has, of which nothing can be learned: it is another one in each process."""
        return hmac.new(_OF_THIS_PROCESS, self._digest, "sha256").hexdigest()

    def matches(self, digest: bytes) -> bool:
        """Return whether the digest is this secret's, in a time that does not depend on where they differ."""
        return hmac.compare_digest(self._digest, digest)


def digest_of(text: str) -> bytes:
    """Return the digest by which secrets are compared."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()


def shown_credentials(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield each credential of a request's headers, or of a gRPC call's metadata."""
    scheme, _, credential = headers.get("Authorization", "").strip().partition(" ")
    if scheme.lower() == BEARER and credential.strip():
        yield credential.strip()
    yield from (given.strip() for name in KEY_HEADERS if (given := headers.get(name, "")).strip())
