"""Tokenizers whose expressions may take hours hold nobody, and ordinary ones are not taken for such."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lmi_core.calls.beside_loop import READING
from lmi_core.calls.haste import NeedsTimeError, in_haste
from lmi_core.errors import InvalidParameter, Overloaded
from lmi_core.texts import costly_expressions
from lmi_core.texts.costly_expressions import KNOWN, may_be_costly
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from tests.longest_gap import event_loop_watched
from tests.processor_time import processor_time

HELLO = Path(__file__).parents[3] / "examples" / "hello"
COSTLY = r"(x+x+)+y"
WORD = "x" * 22 + " "  # 0.1 seconds and more, within the limit of its steps
LENGTH = 10_000  # of texts that are read on the event loop
RUNS = (
    " ",
    "\n",
    "a",
    "A",
    "1",
    ".",
    "é",
    "中",
    "\u3000",
    " \n",
    "aA",
    "'s",
    " a",
    "1a",
    "\r\n ",
    ".\n",
    "e\u0301",
    "\t",
)
SECONDS = 1.0  # where they take some ten milliseconds, and the square of the length would take several seconds
HELD = 0.5  # seconds, of which a busy machine takes some; all words take several
LIMIT = 60.0


def tokenizer(expression: str) -> HuggingFaceTokenizer:
    """Return examples/hello's tokenizer with an expression before all else."""
    backend: Any = Tokenizer.from_file(str(HELLO / "tokenizer.json"))
    split = pre_tokenizers.Split(Regex(expression), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, backend.pre_tokenizer])
    pretrained: Any = PreTrainedTokenizerFast
    return HuggingFaceTokenizer(pretrained(tokenizer_object=backend))


def test_known_expressions_take_little_time_for_any_text() -> None:
    for expression in KNOWN:
        split = pre_tokenizers.Split(Regex(expression), "isolated")
        for run in RUNS:
            text = run * (LENGTH // len(run))
            with processor_time() as taken:
                for each in (text, text + "a", "a" + text + "é"):
                    split.pre_tokenize_str(each)
            assert taken.seconds < SECONDS, (expression, run)


def test_ordinary_tokenizers_are_read_at_once() -> None:
    hello = HuggingFaceTokenizer.load(str(HELLO))
    assert in_haste(10, lambda: hello.encode("hello"))
    assert in_haste(10, lambda: tokenizer(r"\p{N}{1,3}").encode("hello 123"))


def test_what_may_be_costly() -> None:
    backend: Any = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    assert not may_be_costly(backend)
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(COSTLY), "")])
    assert may_be_costly(backend)
    backend = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]", max_input_chars_per_word=100_000))
    assert may_be_costly(backend)


def test_texts_are_the_same() -> None:
    text = "Hello, xxxy and 12 others"
    unknown = tokenizer(r"[x]+y?")
    assert unknown.encode(text) == unknown.pretrained.encode(text)
    with pytest.raises(NeedsTimeError):
        in_haste(10, lambda: unknown.encode(text))


async def test_a_costly_text_holds_neither_the_event_loop_nor_others_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costly_expressions, "MAX_SECONDS", 0.2)
    costly = tokenizer(COSTLY)
    async with event_loop_watched() as gap, asyncio.timeout(LIMIT):
        with pytest.raises(InvalidParameter, match=r"cannot read the text: that takes more than 0.2\d+ seconds"):
            await READING.run_if(False, lambda: costly.encode(WORD * 20))
        with pytest.raises(Overloaded, match="still works on a text"):
            await READING.run_if(False, lambda: costly.encode("hello"))
        ids = None
        while ids is None:
            try:
                ids = await READING.run_if(False, lambda: costly.encode("hello"))
            except Overloaded:
                await asyncio.sleep(0.05)
    assert ids == HuggingFaceTokenizer.load(str(HELLO)).encode("hello")
    assert gap.seconds < HELD
