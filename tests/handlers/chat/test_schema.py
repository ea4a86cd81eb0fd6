import pytest

from lmi_handlers.chat.schema import token_text


@pytest.mark.parametrize(
    ("data", "text"), [(b" the", " the"), ("ü".encode(), "ü"), (b"\xf0\x9f", "bytes:\\xf0\\x9f"), (b"", "")]
)
def test_token_text(data: bytes, text: str) -> None:
    assert token_text(data) == text
