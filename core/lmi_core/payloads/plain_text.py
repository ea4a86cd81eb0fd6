"""Request bodies of plain text."""

from codecs import lookup
from collections.abc import Mapping
from email.message import Message

from lmi_core.errors import InvalidPayload
from lmi_core.payloads.payload import quote

CONTENT_TYPE = "Content-Type"
CSV = "text/csv"
# Python's codec names. Python's other codecs are slow, or decode to lone surrogates.
CHARSETS = {
    "utf-8": "utf-8",
    "ascii": "us-ascii",
    "iso8859-1": "iso-8859-1",
    "cp1252": "windows-1252",
    "utf-16": "utf-16",
}


def is_plain_text(headers: Mapping[str, str]) -> bool:
    """Return whether the Content-Type is text/plain or text/csv."""
    return _type(headers) in ("text/plain", CSV)


def is_csv(headers: Mapping[str, str]) -> bool:
    return _type(headers) == CSV


def _type(headers: Mapping[str, str]) -> str:
    return headers.get(CONTENT_TYPE, "").partition(";")[0].strip().lower()


def read_plain_text(body: bytes, headers: Mapping[str, str]) -> str:
    """Decode the body from the charset in its Content-Type, by default UTF-8. Raise InvalidPayload if this fails."""
    message = Message()
    message[CONTENT_TYPE] = headers[CONTENT_TYPE]
    charset = message.get_content_charset() or "utf-8"
    if _codec(charset) not in CHARSETS:
        raise InvalidPayload(
            f"the body's charset must be one of {', '.join(CHARSETS.values())}. Given: {quote(charset)}"
        )
    try:
        return body.decode(charset)
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"the body is not valid {charset}: {error}") from None


def _codec(charset: str) -> str | None:
    try:
        return lookup(charset).name
    except LookupError:
        return None
