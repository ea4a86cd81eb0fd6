"""Encoder of SageMaker's event stream: https://smithy.io/2.0/aws/amazon-eventstream.html."""

import struct
from binascii import crc32

import orjson

from lmi_core.errors import LmiError
from lmi_core.route import Framing

CONTENT_TYPE = "application/vnd.amazon.eventstream"
LENGTHS_AND_CHECKSUMS = 16  # bytes of a message in addition to headers and payload
STRING = 7  # the type of a string value in a header
MAX_PAYLOAD = 16 * 1024 * 1024  # botocore refuses messages above 24 MiB

PAYLOAD_PART = {
    ":message-type": "event",
    ":event-type": "PayloadPart",
    ":content-type": "application/octet-stream",
}


class EventStream(Framing):
    """Framing of each write as a `PayloadPart` event, and of a failure as an exception at the end."""

    def headers(self, headers: dict[str, str]) -> dict[str, str]:
        return headers | {"Content-Type": CONTENT_TYPE, "X-Amzn-SageMaker-Content-Type": headers["Content-Type"]}

    def frame(self, data: bytes) -> bytes:
        parts = [data[start : start + MAX_PAYLOAD] for start in range(0, len(data), MAX_PAYLOAD)]
        return b"".join([message(PAYLOAD_PART, part) for part in parts])

    def failure(self, error: LmiError) -> bytes:
        content = {"Message": error.message}
        if error.kind == "generation_timeout":
            return _exception("ModelStreamError", content | {"ErrorCode": "ModelInvocationTimeExceeded"})
        return _exception("InternalStreamFailure", content)


def message(headers: dict[str, str], payload: bytes) -> bytes:
    """Return an encoded message: lengths, their checksum, headers, payload, and the checksum of all."""
    head = b"".join([_header(name, value) for name, value in headers.items()])
    lengths = struct.pack("!II", LENGTHS_AND_CHECKSUMS + len(head) + len(payload), len(head))
    checked = lengths + struct.pack("!I", crc32(lengths)) + head + payload
    return checked + struct.pack("!I", crc32(checked))


def _exception(name: str, content: dict[str, str]) -> bytes:
    headers = {":message-type": "exception", ":exception-type": name, ":content-type": "application/json"}
    return message(headers, orjson.dumps(content))


def _header(name: str, value: str) -> bytes:
    name_bytes, value_bytes = name.encode(), value.encode()
    return struct.pack("!B", len(name_bytes)) + name_bytes + struct.pack("!BH", STRING, len(value_bytes)) + value_bytes
