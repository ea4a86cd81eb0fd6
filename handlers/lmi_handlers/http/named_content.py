"""A request's query and body as contents by name, the form for model functions."""

import asyncio
import warnings
from urllib.parse import parse_qsl

from aiohttp import BadContentDispositionHeader, BadContentDispositionParam, BodyPartReader, MultipartReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.streams import StreamReader

from lmi_core.errors import InvalidPayload
from lmi_core.handler import Call
from lmi_core.script.function.protocol import Content

DATA = "data"  # the name of the content if the body has no fields
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
MAX_FIELDS = 1000  # each costs far more than its bytes
PLAIN_ENCODINGS = ("7bit", "8bit", "binary")
JSON_BEGINNINGS = (b"{", b"[", b'"')


async def named_content(call: Call) -> Content:
    """Return the query's fields, then those of a form or the parts of a multipart body; any other body is `data`.

    Names may be repeated. Raise InvalidPayload if the body cannot be parsed or has too many fields.
    """
    kind = call.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    content: Content = [(_name(name), _bytes(value)) for name, value in call.query.items()]
    if kind == MULTIPART:
        content += await _parts(call)
    elif kind == FORM and (form := _form(call.body)) is not None:
        try:
            pairs = parse_qsl(form, keep_blank_values=True, errors="surrogateescape", max_num_fields=MAX_FIELDS)
        except ValueError:
            raise _too_many() from None
        content += [(_name(name), _bytes(value)) for name, value in pairs]
    else:
        content.append((DATA, call.body))
    _check_count(len(content))
    return content or [(DATA, b"")]  # an input without content makes a function load its model


def _form(body: bytes) -> str | None:
    """Return the form in a body; None if it is not one, because `curl -d` declares any body a form.

    Forms are percent-encoded: they are valid UTF-8 and do not start like JSON.
    """
    if b"=" not in body or body.lstrip().startswith(JSON_BEGINNINGS):
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


async def _parts(call: Call) -> Content:
    content: Content = []
    try:
        loop = asyncio.get_running_loop()
        stream = StreamReader(BaseProtocol(loop), limit=len(call.body) + 1, loop=loop)
        stream.feed_data(call.body)
        stream.feed_eof()
        reader = MultipartReader(call.headers, stream)
        while (part := await _next(reader)) is not None:
            _check_count(len(content) + 1)
            content.append((_part_name(part, len(content)), bytes(await part.read())))
            await asyncio.sleep(0)  # a body with many parts must not delay other requests
    except (ValueError, AssertionError, BadHttpMessage, Warning) as error:
        reason = " ".join(str(getattr(error, "message", None) or error).split()) or type(error).__name__
        raise InvalidPayload(f"the {MULTIPART} body cannot be read: {reason}") from None
    return content


async def _next(reader: MultipartReader) -> BodyPartReader | None:
    with warnings.catch_warnings():  # never waits, because the body is complete
        warnings.simplefilter("error", BadContentDispositionHeader)
        warnings.simplefilter("error", BadContentDispositionParam)
        part = await reader.next()
        if part is not None and not isinstance(part, BodyPartReader):
            raise ValueError("a part is itself a multipart message: send its parts individually")
        if part is not None:
            _ = part.name  # parses the part's Content-Disposition
        return part


def _part_name(part: BodyPartReader, index: int) -> str:
    if not part.name:
        raise ValueError(f'part {index + 1} has no name: give it a `Content-Disposition: form-data; name="..."`')
    for header, plain in (("Content-Transfer-Encoding", PLAIN_ENCODINGS), ("Content-Encoding", ("identity",))):
        encoding = part.headers.get(header, plain[0])
        if encoding.lower() not in plain:
            raise ValueError(f"part {part.name} has the {header} {encoding}: send its bytes without encoding")
    return _name(part.name)


def _check_count(fields: int) -> None:
    if fields > MAX_FIELDS:
        raise _too_many()


def _too_many() -> InvalidPayload:
    return InvalidPayload(f"the query and the body together must have at most {MAX_FIELDS} fields")


def _bytes(value: str) -> bytes:
    return value.encode(errors="surrogateescape")


def _name(name: str) -> str:
    """Return the name as valid Unicode; bytes that are not UTF-8 become U+FFFD."""
    return _bytes(name).decode(errors="replace")
