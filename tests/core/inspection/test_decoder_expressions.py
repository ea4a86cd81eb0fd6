"""Expressions of decoders, of which those that are taken take time in proportion to a text."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, decoders

from lmi_core.errors import ConfigurationError
from lmi_core.inspection.decoder_expressions import MAX_STEPS, takes_little
from tests.core.inspection.test_tokenizer_growth import load
from tests.processor_time import processor_time

# The first ones are those of published tokenizers.
TAKEN = (
    *("▁", r"(?<!\n)^ ", "^ ", r"\n", "⟂", " +", r"\s+", r"\s{2,}", "█ ", r"\\n", r"<0x[0-9A-F]{2}"),
    *(r"(?:a|b)c*", r"\p{L}[\s\d]+", r"[^\]x]{1,9}", "x|y", "x$", "xx+", "(?=x)x*", ".*", ""),
)
REFUSED = (
    *("(x+x+)+y", "x+y", "x+$", "(x|xx)+", "(?:xx)*", "x*x*", "x++", "x+?", "x{1,999}", "(?=x+)x", "x?x?x?xxx", "^*x"),
    *(r"(x)\1+", r"(x)\1", r"\g<1>", r"\X+", "(?i:x)", "[[:alpha:]]+", "x" * 1001, r"(?<a>x)\k<a>", "x)*"),
)
LENGTH = 100_000
SECONDS = 1.0  # where they take some milliseconds, and the square of the length would take many seconds


@pytest.mark.parametrize("expression", TAKEN)
def test_those_that_take_little(expression: str) -> None:
    assert takes_little(expression)
    decoder = decoders.Replace(Regex(expression), "-")
    with processor_time() as taken:
        for text in ("x" * LENGTH, " " * LENGTH + "x", "c" * LENGTH, "x1 " * (LENGTH // 3)):
            decoder.decode([text])
    assert taken.seconds < SECONDS


@pytest.mark.parametrize("expression", REFUSED, ids=lambda expression: expression[:20])
def test_those_that_may_take_long(expression: str) -> None:
    assert not takes_little(expression)


def replacing(expression: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": expression}, "content": "-"}


def test_tokenizers(tmp_path: Path) -> None:
    inner = {"type": "Sequence", "decoders": [{"type": "Fuse"}, replacing("(x+x+)+y")]}
    wrong = {
        "costly": (inner, r"its decoder has the expression \(x\+x\+\)\+y, which may take hours for some texts"),
        "long": ({"type": "Sequence", "decoders": [{"type": "Fuse"}] * (MAX_STEPS + 1)}, "more than 64 steps"),
    }
    for name, (decoder, expected) in wrong.items():
        with pytest.raises(ConfigurationError, match=expected):
            load(tmp_path / name, decoder=decoder)
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    taken = {"type": "Sequence", "decoders": [byte_level, replacing(r"(?<!\n)^ "), replacing("e+")]}
    tokenizer = load(tmp_path / "taken", decoder=taken)
    assert tokenizer.decode(tokenizer.encode(" feet")) == "-f-t"
