"""The expressions of a tokenizer's decoder, which run for each token of an answer, where nothing can interrupt them.

What they cost is a question of their form: without a repetition, or with one of a single character at the end, they
take time in proportion to a text's length. Repetitions that are nested or followed by more may take hours.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lmi_core.inspection.tokenizer_growth import state_of

if TYPE_CHECKING:
    import tokenizers

MAX_STEPS = 64  # of a decoder, all of which every token passes; models have up to ten
MAX_LENGTH = 1000  # of an expression, all of which may be compared with every character of a text
MAX_SHOWN = 80  # characters of an expression in a message
FRAME = re.compile(r"\((?:\?(?:[:=!]|<[=!]))?|[)|]")  # what groups one character and another, or separates them
CHARACTER = re.compile(r"\\[pP]\{\^?\w+\}|\\[^1-9pPkgRX]|\[(?:\\.|[^\]\\\[])+\]|[^\\\[\]()*+?{}|]", re.DOTALL)
LAST = re.compile(r"[*+]|\{\d{1,2}(?:,\d{0,2})?\}")


def costly_decoder(tokenizer: "tokenizers.Tokenizer") -> Iterator[str]:
    """Yield what in a tokenizer's decoder may take long at each token."""
    steps = [] if tokenizer.decoder is None else [*_steps(state_of(tokenizer.decoder))]
    if len(steps) > MAX_STEPS:
        yield f"its decoder has more than {MAX_STEPS} steps"
    for step in steps:
        pattern = step.get("pattern")
        expression = pattern.get("Regex") if isinstance(pattern, dict) else None
        if expression is not None and not takes_little(expression):
            shown = expression[:MAX_SHOWN] + ("..." if len(expression) > MAX_SHOWN else "")
            yield f"its decoder has the expression {shown}, which may take hours for some texts"


def takes_little(expression: str) -> bool:
    """Return whether an expression surely takes time in proportion to a text's length."""
    place, repeatable = 0, False
    while found := FRAME.match(expression, place) or CHARACTER.match(expression, place):
        place, repeatable = found.end(), found.re is CHARACTER
    is_read = place == len(expression) or (repeatable and LAST.fullmatch(expression, place) is not None)
    return is_read and len(expression) <= MAX_LENGTH


def _steps(decoder: dict[str, Any]) -> Iterator[dict[str, Any]]:
    inner = decoder.get("decoders")
    if inner is None:
        yield decoder
    for each in inner or ():
        yield from _steps(each)
