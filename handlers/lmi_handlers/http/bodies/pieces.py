"""Long bodies of answers, sent in pieces."""

from io import BytesIO

PIECE = 1 << 18  # bytes of a body that is written at once


def response_body(body: bytes) -> bytes | BytesIO:
    """Return a body for aiohttp's responses, which writes a file no faster than its client reads."""
    return body if len(body) <= PIECE else BytesIO(body)
