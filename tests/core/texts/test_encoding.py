"""Tokenizers may encode short texts on the event loop if none of their expressions can take long."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

from lmi_core.texts.encoding import QUICK_TEXT, is_quick
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer

HELLO = Path(__file__).parents[3] / "examples" / "hello"
LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
GPT_4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.mark.parametrize(
    ("expression", "quick"),
    [
        (LLAMA, True),
        (GPT_4O, True),
        (r"(x+x+)+y", False),
        (r"(?:ab){2,}", True),
        (r"x*x*x*y", False),
        (r"a{1,}b{,}c+", False),
        (r"(x+)\1", False),
        (r"(?:[A-Za-z]+|[0-9])[A-Za-z0-9]*\w*[@#]", False),
        (r"a{0,400}b{0,400}c{0,400}d", False),
        (r"[!*+|(){}]+[a*b]|\(+\)+", True),
        (r"[+*]x+y+z+", False),
    ],
)
def test_expressions(expression: str, quick: bool) -> None:
    backend: Any = Tokenizer.from_file(str(HELLO / "tokenizer.json"))
    assert is_quick(backend)
    plain = backend.pre_tokenizer
    split = pre_tokenizers.Split(Regex(expression), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, plain])
    assert is_quick(backend) is quick
    backend.pre_tokenizer = plain
    backend.normalizer = normalizers.Replace(Regex(expression), "-")
    assert is_quick(backend) is quick


def test_steps_in_python_are_not_known() -> None:
    class Step:
        def pre_tokenize(self, text: Any) -> None:
            pass

    backend: Any = Tokenizer.from_file(str(HELLO / "tokenizer.json"))
    custom: Any = pre_tokenizers.PreTokenizer
    backend.pre_tokenizer = custom.custom(Step())
    assert not is_quick(backend)


@pytest.mark.parametrize("length", [1, QUICK_TEXT, QUICK_TEXT + 1])
@pytest.mark.parametrize("special", [True, False])
def test_short_texts_have_the_same_ids(length: int, special: bool) -> None:
    hello = HuggingFaceTokenizer.load(str(HELLO))
    text = ("Hello, you and 12 others! \n" * 50)[:length]
    assert hello.encode(text, special) == hello.pretrained.encode(text, add_special_tokens=special)
