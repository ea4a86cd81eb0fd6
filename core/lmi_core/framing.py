"""The framing that a route puts around the bytes of its answers, by default none."""

from lmi_core.errors import LmiError


class Framing:
    """The identity framing; routes whose clients read each write as an event have a subclass."""

    def headers(self, headers: dict[str, str]) -> dict[str, str]:
        """Return the headers of the framed answer, given the unframed ones."""
        return headers

    def frame(self, data: bytes) -> bytes:
        """Return one write with its frame."""
        return data

    def failure(self, error: LmiError) -> bytes:
        """Return what to send after the formatter's error text once an answer's bytes have been sent."""
        return b""
