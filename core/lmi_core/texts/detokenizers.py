"""Decoding of token ids: incremental decoders, and the bytes of a vocabulary's tokens."""

import json
import re
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from lmi_core.generation.tokenizer import Detokenizer

if TYPE_CHECKING:
    import tokenizers
    from tokenizers.decoders import DecodeStream
    from transformers import PreTrainedTokenizerBase

INCOMPLETE = "\ufffd"  # stands for an incomplete character in decoded text
MAX_CHARACTER_BYTES = 4  # in UTF-8
MAX_PENDING = 32  # ids that have no text yet
PRIMING_TOKENS = 16  # prompt tokens to decode, enough to tell whether a word begins with a blank
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # pieces for single bytes of rare characters
BYTE_LEVEL = "ByteLevel"  # the type of a decoder
WORD_START = "\u2581"  # means a blank in SentencePiece's vocabularies


class FastDetokenizer(Detokenizer):
    """The incremental decoder of tokenizers written in Rust."""

    def __init__(self, tokenizer: "tokenizers.Tokenizer", prompt_ids: list[int]) -> None:
        self._tokenizer = tokenizer
        before, self.pending = _split_prompt(tokenizer, prompt_ids)  # pending: ids that have no text yet
        self._stream = self._new_stream(before)
        self._written = ""  # the end of the prompt's text, which is not part of the answer
        if self.pending:
            self._written = _decode(tokenizer, self.pending)
            self._step_all(self.pending)

    def step(self, token_id: int) -> str:
        self.pending.append(token_id)
        try:
            text = self._stream.step(self._tokenizer, token_id)
        except Exception as error:  # tokenizers raises no narrower class
            if "Invalid prefix" not in str(error):
                raise
            # This token changes how the previous text is written, but that was already sent: continue from here.
            self._stream = self._new_stream([])
            text = self._step_all(self.pending)
        if text:
            self.pending.clear()
        elif len(self.pending) >= MAX_PENDING:
            text = self._write_pending()
        if text and self._written:  # without the part that belongs to the prompt
            same = takewhile(lambda pair: pair[0] == pair[1], zip(text, self._written, strict=False))
            text = text[len(list(same)) :]
            self._written = ""
        return text or ""

    def _write_pending(self) -> str:
        """Return the text of ids that are too many for one character, except for the last, which may start one.

        The library decodes all of them at each step, which takes minutes for thousands of U+FFFD.
        """
        ids = self.pending
        splits = [(ids[:-kept], ids[-kept:]) for kept in range(1, MAX_CHARACTER_BYTES + 1)]
        texts = [[_decode(self._tokenizer, part) for part in split] for split in splits]
        between = min(range(len(splits)), key=lambda index: len("".join(texts[index])))  # no character is split there
        self.pending = splits[between][1]
        self._stream = self._new_stream([])
        self._step_all(self.pending)
        return texts[between][0]

    def _step_all(self, ids: list[int]) -> str:
        return "".join(self._stream.step(self._tokenizer, token_id) or "" for token_id in ids)

    @staticmethod
    def _new_stream(ids: list[int]) -> "DecodeStream":
        from tokenizers.decoders import DecodeStream

        return DecodeStream(ids=ids, skip_special_tokens=True)


def _split_prompt(tokenizer: "tokenizers.Tokenizer", prompt_ids: list[int]) -> tuple[list[int], list[int]]:
    """Return the last ids of a prompt up to a complete character, and the few ids after it.

    A stream that starts with an incomplete character would return all its text with the first token. A text can also
    just look incomplete, if it is decoded from the middle of a character; starting elsewhere then helps.
    """
    end = len(prompt_ids)
    for whole in range(end, max(0, end - PRIMING_TOKENS), -1):
        for start in range(whole - PRIMING_TOKENS, whole - PRIMING_TOKENS - MAX_CHARACTER_BYTES, -1):
            before = prompt_ids[max(0, start) : whole]
            if not _decode(tokenizer, before).endswith(INCOMPLETE):
                return before, prompt_ids[whole:]
    return [], prompt_ids[-PRIMING_TOKENS:]


def _decode(tokenizer: "tokenizers.Tokenizer", ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=True))


class WholeTexts(dict[int, str]):
    """The texts of a byte-level vocabulary by id, decoded on first use; "" for incomplete characters."""

    def __init__(self, tokenizer: "tokenizers.Tokenizer") -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, token_id: int) -> str:
        text = str(self._tokenizer.decode([token_id], skip_special_tokens=True))
        self[token_id] = text = "" if INCOMPLETE in text else text
        return text


class ByteLevelDetokenizer(Detokenizer):
    """The incremental decoder of byte-level vocabularies.

    Most tokens are complete characters; between characters, their text is always the same and is looked up.
    """

    def __init__(self, tokenizer: "tokenizers.Tokenizer", prompt_ids: list[int], texts: WholeTexts) -> None:
        self._tokenizer = tokenizer
        self._texts = texts
        between = not prompt_ids or texts[prompt_ids[-1]]
        self._decoder = None if between else FastDetokenizer(tokenizer, prompt_ids)  # None: between characters

    def step(self, token_id: int) -> str:
        if self._decoder is None:
            if text := self._texts[token_id]:
                return text
            self._decoder = FastDetokenizer(self._tokenizer, [])
        text = self._decoder.step(token_id)
        if not self._decoder.pending:
            self._decoder = None
        return text


class SlowDetokenizer(Detokenizer):
    """The incremental decoder of tokenizers in Python: it decodes the last tokens with and without the new ones."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", prompt_ids: list[int]) -> None:
        self._tokenizer = tokenizer
        self._ids = prompt_ids[-PRIMING_TOKENS:]
        self._settled = len(self._ids)  # number of ids whose text was returned

    def step(self, token_id: int) -> str:
        self._ids.append(token_id)
        before, text = self._decode(self._ids[: self._settled]), self._decode(self._ids)
        if text.endswith(INCOMPLETE) or len(text) <= len(before):
            return ""
        self._ids, self._settled = self._ids[self._settled :], len(self._ids) - self._settled
        return text[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


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


_PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
# The byte of each character: printable bytes are themselves, the others the characters from 256 on.
BYTES = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + i): byte for i, byte in enumerate(_OTHERS)}
# Maps each character of the alphabet to the character numbered by its byte, and all others above 255.
_TO_BYTES = dict.fromkeys(range(256), "\uffff") | {ord(character): byte for character, byte in BYTES.items()}
