"""What a route puts around the bytes of its answers; here, nothing."""

from lmi_core.errors import LmiError


class Framing:
    """A route has one of another class where its clients read an answer's writes as events."""

    def headers(self, headers: dict[str, str]) -> dict[str, str]:
        """Return the headers of the framed answer, given those of the unframed one."""
        return headers

    def frame(self, data: bytes) -> bytes:
        """Return one write in its frame."""
        return data

    def failure(self, error: LmiError) -> bytes:
        """Return what follows the formatter's words for an error, once bytes were sent."""
        return b""
