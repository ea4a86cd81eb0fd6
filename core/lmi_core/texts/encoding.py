"""Encoding of texts by a tokenizer's Rust backend, in this process or in a child."""

from array import array
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from lmi_core.host.memory import return_free_memory

if TYPE_CHECKING:
    import tokenizers


def encoding(backend: "tokenizers.Tokenizer") -> Callable[[str, bool], list[int]]:
    """Return the function that encodes a text and lets other threads run, except while it lists the ids."""

    def encode(text: str, add_special_tokens: bool) -> list[int]:
        return list(backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids)

    return encode


def encoder(tokenizer: str) -> Callable[[str, bool], "array[int]"]:
    """Return the encoding function of a tokenizer, given the contents of its tokenizer.json, for a child."""
    import tokenizers

    encode_here = encoding(tokenizers.Tokenizer.from_str(tokenizer))

    def encode(text: str, add_special_tokens: bool) -> "array[int]":
        ids = array("I", encode_here(text, add_special_tokens))
        return_free_memory()  # a token takes hundreds of bytes until it is an id
        return ids

    return encode


def listed(ids: Iterable[int]) -> list[int]:
    """Return ids as a list, whose making lets other threads run, and whose equal ids are the same objects.

    Millions of objects would take long to free, and leave the memory between them to the interpreter.
    """
    known: dict[int, int] = {}
    return [known.setdefault(token_id, token_id) for token_id in ids]
