import pytest

from lmi_core.errors import InvalidPayload
from lmi_core.payloads.plain_text import is_plain_text, read_plain_text

ONE_OF = "the body's charset must be one of utf-8, us-ascii, iso-8859-1, windows-1252, utf-16."


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("text/plain", True),
        ("Text/Plain; charset=utf-8", True),
        ("text/plainer", False),
        ("application/json", False),
        (None, False),
    ],
)
def test_is_plain_text(content_type: str | None, expected: bool) -> None:
    assert is_plain_text({} if content_type is None else {"Content-Type": content_type}) is expected


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/plain", "Gr\u00fc\u00df".encode()),
        ('text/plain; charset="UTF-8"', "Gr\u00fc\u00df".encode()),
        ("text/plain;charset=iso-8859-1", "Gr\u00fc\u00df".encode("latin-1")),
        ("text/plain;charset=Windows-1252", "Gr\u00fc\u00df".encode("latin-1")),
        ("text/plain;charset=utf-16", "Gr\u00fc\u00df".encode("utf-16")),
    ],
)
def test_text_in_its_charset(content_type: str, body: bytes) -> None:
    assert read_plain_text(body, {"Content-Type": content_type}) == "Gr\u00fc\u00df"


@pytest.mark.parametrize(
    ("content_type", "message"),
    [
        ("text/plain", "the body is not valid utf-8: "),
        ("text/plain; charset=us-ascii", "the body is not valid us-ascii: "),
        ("text/plain; charset=klingon", f"{ONE_OF} Given: 'klingon'"),
        ("text/plain; charset=punycode", f"{ONE_OF} Given: 'punycode'"),
        ("text/plain; charset=base64", f"{ONE_OF} Given: 'base64'"),
    ],
)
def test_errors(content_type: str, message: str) -> None:
    with pytest.raises(InvalidPayload) as raised:
        read_plain_text(b"\xff", {"Content-Type": content_type})
    assert raised.value.message.startswith(message)
