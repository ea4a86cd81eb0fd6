"""Encoding of texts by a tokenizer's Rust backend, in this process or in a child."""

import json
import re
from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tokenizers

QUICK_TEXT = 300  # characters, which take less than a millisecond where no expression can take long
MAX_REPETITIONS = 2  # in a branch of an expression: the work grows with the cube of a text's length at most
_REFERENCE = re.compile(r"\\[1-9k]")
_CHARACTER = re.compile(r"\\[pP]\{[^}]*\}|\\.|\[(?:\\.|[^\]\\])*\]", re.DOTALL)  # a class, or an escape
_GROUP = re.compile(r"\((?:\?[^:()]*:)?[^()*+{]*\)")  # without a repetition in it
_REPETITION = re.compile(r"[*+]|\{\d*,(?:\d{2,})?\}")


def encoding(backend: "tokenizers.Tokenizer") -> Callable[[str, bool], list[int]]:
    """Return the function that encodes a text and lets other threads run, except while it lists the ids."""
    return lambda text, special: list(backend.encode_batch_fast([text], add_special_tokens=special)[0].ids)


def is_quick(backend: "tokenizers.Tokenizer") -> bool:
    """Return whether the tokenizer encodes every short text quickly: no expression in it can backtrack much.

    Those of Llama, Qwen and GPT are quick. With a repetition in a group, such as `(x+x+)+y`, 30 characters can take
    hours.
    """
    steps = [step for step in (backend.normalizer, backend.pre_tokenizer) if step is not None]
    try:
        expressions = [each for step in steps for each in _expressions(json.loads(step.__getstate__()))]
    except Exception:  # a step in Python code
        return False
    return all(map(_backtracks_little, expressions))


def _backtracks_little(expression: str) -> bool:
    plain = _GROUP.sub("", _CHARACTER.sub("x", expression))
    if "(" in plain or _REFERENCE.search(expression):
        return False
    return all(len(_REPETITION.findall(branch)) <= MAX_REPETITIONS for branch in plain.split("|"))


def _expressions(step: object) -> Iterator[str]:
    """Yield the regular expressions in a part of a tokenizer.json."""
    if isinstance(step, dict):
        if isinstance(expression := step.get("Regex"), str):
            yield expression
        for each in step.values():
            yield from _expressions(each)
    elif isinstance(step, list):
        for each in step:
            yield from _expressions(each)


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
