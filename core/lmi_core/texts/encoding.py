"""Encoding of texts by a tokenizer's Rust backend, in this process or in a child."""

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tokenizers


def encoding(backend: "tokenizers.Tokenizer") -> Callable[[str, bool], list[int]]:
    """Return the function that encodes a text and lets other threads run, except while it lists the ids."""

    def encode(text: str, add_special_tokens: bool) -> list[int]:
        return list(backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids)

    return encode


def encoder(tokenizer: bytes) -> Callable[[str, bool], bytes]:
    """Return the function that encodes a text to an array of ids, given the contents of a tokenizer.json."""
    import tokenizers

    encode_here = encoding(tokenizers.Tokenizer.from_buffer(tokenizer))
    return lambda text, add_special_tokens: array("I", encode_here(text, add_special_tokens)).tobytes()


def to_list(ids: bytes) -> list[int]:
    """Return an array of ids as a list, letting other threads run meanwhile; equal ids are the same object.

    Millions of objects would take long to free, and would leave gaps in the interpreter's memory.
    """
    known: dict[int, int] = {}
    return [known.setdefault(token_id, token_id) for token_id in memoryview(ids).cast("I")]
