import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from lmi_core.texts.detokenizers import byte_level_bytes, is_byte_level, piece_bytes


def test_every_byte_has_a_character() -> None:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    assert {byte_level_bytes(character) for character in alphabet} == {bytes([byte]) for byte in range(256)}


@pytest.mark.parametrize(
    ("piece", "data"),
    [("Ġthe", b" the"), ("Ã¼", "ü".encode()), ("â", b"\xe2"), ("<end▁of>", "<end▁of>".encode())],
)
def test_byte_level(piece: str, data: bytes) -> None:
    assert byte_level_bytes(piece) == data


@pytest.mark.parametrize(
    ("piece", "data"), [("▁the", b" the"), ("<0xE2>", b"\xe2"), ("ü", "ü".encode()), ("</s>", b"</s>")]
)
def test_pieces(piece: str, data: bytes) -> None:
    assert piece_bytes(piece) == data


def test_is_byte_level() -> None:
    tokenizer = Tokenizer(models.BPE())
    assert [is_byte_level(None), is_byte_level(tokenizer)] == [False, False]
    tokenizer.decoder = decoders.ByteLevel()
    assert is_byte_level(tokenizer)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    assert not is_byte_level(tokenizer)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()])
    assert is_byte_level(tokenizer)
