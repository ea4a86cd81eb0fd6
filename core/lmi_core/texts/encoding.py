"""Encoding of texts by a tokenizer's Rust backend, in this process or in a child."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tokenizers


def encoding(backend: "tokenizers.Tokenizer") -> Callable[[str, bool], list[int]]:
    """Return the function that encodes a text and lets other threads run."""

    def encode(text: str, add_special_tokens: bool) -> list[int]:
        return list(backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids)

    return encode


def encoder(tokenizer: str) -> Callable[[str, bool], list[int]]:
    """Return the encoding function of a tokenizer, given the contents of its tokenizer.json."""
    import tokenizers

    return encoding(tokenizers.Tokenizer.from_str(tokenizer))
