"""Request bodies that are a text, and no JSON."""

from collections.abc import Mapping
from email.message import Message

from lmi_core.errors import InvalidPayload
from lmi_core.payload import shown

CONTENT_TYPE = "Content-Type"


def is_plain_text(headers: Mapping[str, str]) -> bool:
    """Whether the Content-Type says that the body is a text."""
    return headers.get(CONTENT_TYPE, "").partition(";")[0].strip().lower() == "text/plain"


def read_plain_text(body: bytes, headers: Mapping[str, str]) -> str:
    """The body in the charset that its Content-Type names, or in UTF-8. Raises InvalidPayload."""
    message = Message()
    message[CONTENT_TYPE] = headers[CONTENT_TYPE]
    charset = message.get_content_charset() or "utf-8"
    try:
        return body.decode(charset)
    except LookupError:
        raise InvalidPayload(f"the body's charset must be one that there is. Given: {shown(charset)}") from None
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"the body is not valid {charset}: {error}") from None
