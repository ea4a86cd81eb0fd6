"""Compressed request bodies, a few kilobytes of which can expand to gigabytes."""

import zlib

from aiohttp import hdrs, web

from lmi_core.errors import InvalidPayload, PayloadTooLarge, UnsupportedEncoding
from lmi_core.payloads.payload import quote

DECODED = ("gzip", "deflate")
ENCODINGS = ", ".join([*DECODED, "identity"])
ANY_RATIO = 1 << 20  # bytes up to which any ratio is allowed
MAX_RATIO = 100  # JSON with texts expands by a factor of less than 10
MAX_MEMBERS = 1000  # consecutive gzip members, each of which costs more time than its bytes
WINDOW = 1 << 16  # bytes of a body that are decompressed at a time


def body_encoding(request: web.Request) -> str | None:
    """Return the compression of the body, if any.

    Raise UnsupportedEncoding for an unknown encoding, which would otherwise be parsed as JSON.
    """
    encoding = request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower()
    if encoding == "identity" or not request.body_exists:
        return None
    if encoding not in DECODED:
        raise UnsupportedEncoding(
            f"the Content-Encoding of the body must be one of {ENCODINGS}. Given: {quote(encoding)}"
        )
    return encoding


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """Decompress a body in bounded memory.

    Raise PayloadTooLarge if it is longer than `limit` or far longer than its compressed form, or InvalidPayload.
    """
    found = bytearray()
    try:
        _decompress(body, encoding, limit, found)
        return bytes(found)
    finally:
        found.clear()  # otherwise, the error's traceback would keep it until the client is informed


def _decompress(body: bytes, encoding: str, limit: int, found: bytearray) -> None:
    bound = min(limit, max(ANY_RATIO, MAX_RATIO * len(body)))
    try:
        whole = _from_zlib(body, bound, _window_bits(body, encoding), found)
    except zlib.error as error:
        raise _unreadable(encoding, str(error).rpartition(": ")[2]) from None
    if not whole:
        raise _unreadable(encoding, "it ends too early")
    if len(found) <= bound:
        return
    if bound == limit:
        raise PayloadTooLarge(f"the body must be at most {limit} bytes (max_request_size)")
    raise PayloadTooLarge(
        f"the body must not expand to more than {MAX_RATIO} times its compressed size, or {ANY_RATIO} bytes"
    )


def _window_bits(body: bytes, encoding: str) -> int:
    """Return zlib's code for the format; `deflate` has zlib's header, except from some clients."""
    if encoding == "gzip":
        return 16 + zlib.MAX_WBITS
    return zlib.MAX_WBITS if body[:1] and body[0] & 0xF == zlib.DEFLATED else -zlib.MAX_WBITS


def _from_zlib(body: bytes, bound: int, window_bits: int, found: bytearray) -> bool:
    """Append the decompressed body up to just above the limit; return False if it is truncated."""
    data, position = memoryview(body), 0
    members, member = 1, zlib.decompressobj(window_bits)
    while position < len(data) and len(found) <= bound:
        if member.eof:
            members, member = members + 1, zlib.decompressobj(window_bits)
        if members > MAX_MEMBERS:
            raise zlib.error(f"it has more than {MAX_MEMBERS} members")
        window = data[position : position + WINDOW]
        found += member.decompress(window, bound + 1 - len(found))
        position += len(window) - len(member.unused_data)
    return member.eof or len(found) > bound


def _unreadable(encoding: str, reason: str) -> InvalidPayload:
    return InvalidPayload(f"the body cannot be read as its Content-Encoding, {encoding}: {reason}")
