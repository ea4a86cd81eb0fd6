"""What a route puts around the bytes of its answers; here, nothing."""

from lmi_core.errors import LmiError


class Framing:
    """A route has one of another class where its clients read an answer's writes as events."""

    def headers(self, headers: dict[str, str]) -> dict[str, str]:
        """Of an answer that would have these without it."""
        return headers

    def frame(self, data: bytes) -> bytes:
        """One write."""
        return data

    def failure(self, error: LmiError) -> bytes:
        """What follows the formatter's words for an error, once bytes were sent."""
        return b""
