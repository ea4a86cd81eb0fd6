"""The bytes of a vocabulary's tokens."""

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tokenizers

BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # pieces for single bytes of rare characters
BYTE_LEVEL = "ByteLevel"  # the type of a decoder
WORD_START = "\u2581"  # means a blank in SentencePiece's vocabularies


def is_byte_level(tokenizer: "tokenizers.Tokenizer | None") -> bool:
    """Return whether each character of a piece stands for a byte, as in GPT-2's vocabulary."""
    decoder = _decoder(tokenizer)
    return any(part.get("type") == BYTE_LEVEL for part in (decoder, *decoder.get("decoders", ())))


def joins_bytes(tokenizer: "tokenizers.Tokenizer") -> bool:
    """Return whether decoding only joins the bytes of tokens."""
    return _decoder(tokenizer).get("type") == BYTE_LEVEL


def _decoder(tokenizer: "tokenizers.Tokenizer | None") -> dict[str, Any]:
    """Return the description of the tokenizer's decoder; {} without one."""
    if tokenizer is None or tokenizer.decoder is None:
        return {}
    return dict(json.loads(tokenizer.decoder.__getstate__()))


def byte_level_bytes(piece: str) -> bytes:
    """Return a byte-level piece's bytes; one outside the byte alphabet was added to the vocabulary as plain text."""
    try:
        return piece.translate(_TO_BYTES).encode("latin-1")
    except UnicodeEncodeError:
        return piece.encode()


def piece_bytes(piece: str) -> bytes:
    byte = BYTE_PIECE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(WORD_START, " ").encode()


def _byte_level_alphabet() -> dict[str, int]:
    """Return the byte of each character: printable bytes are themselves, the others the characters from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTES = _byte_level_alphabet()
# Maps each character of the alphabet to the character numbered by its byte, and all others above 255.
_TO_BYTES = dict.fromkeys(range(256), "\uffff") | {ord(character): byte for character, byte in BYTES.items()}
