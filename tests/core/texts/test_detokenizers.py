"""Detokenizers; tests/core/texts/test_huggingface_tokenizer.py has what they have in common."""

import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from lmi_core.texts.detokenizers import ByteLevelDetokenizer, FastDetokenizer, WholeTexts
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer

HELLO = Path(__file__).parents[3] / "examples" / "hello"
PIECES = ["a", "Ġthe", "Ã", "©", "æĿ", "±", "ï¿½", "ĠÃ", "ÿ", "<think>", "two words"]  # Ġ: a blank; Ã, ©: é; æĿ, ±: 東


def byte_level() -> Tokenizer:
    """Return a vocabulary of whole characters, parts of some, what never is one, and added texts."""
    vocabulary = {piece: place for place, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.add_tokens(["<tool>", "東京 é"])
    return tokenizer


@pytest.mark.parametrize("vocabulary", ["small", "hello"])
@pytest.mark.parametrize("prompt_length", [0, 1, 2, 30])
def test_looks_up_what_the_library_decodes(vocabulary: str, prompt_length: int) -> None:
    tokenizer = byte_level() if vocabulary == "small" else Tokenizer.from_file(str(HELLO / "tokenizer.json"))
    texts = WholeTexts(tokenizer)
    choice = random.Random(prompt_length)
    for _ in range(300):
        ids = [choice.randrange(tokenizer.get_vocab_size() + 1) for _ in range(prompt_length + 40)]
        prompt, generated = ids[:prompt_length], ids[prompt_length:]
        looked_up, decoded = ByteLevelDetokenizer(tokenizer, prompt, texts), FastDetokenizer(tokenizer, prompt)
        assert [looked_up.step(i) for i in generated] == [decoded.step(i) for i in generated]


def test_parts_of_characters_are_not_looked_up() -> None:
    tokenizer = byte_level()
    texts = WholeTexts(tokenizer)
    found = {piece: texts[token_id] for piece, token_id in tokenizer.get_vocab().items()}
    unchanged = {text: text for text in ("a", "<think>", "two words", "<tool>", "東京 é")}
    assert {piece: text for piece, text in found.items() if text} == unchanged | {"Ġthe": " the"}


def test_only_a_text_that_is_the_bytes_of_its_tokens_is_looked_up() -> None:
    stripped = byte_level()
    stripped.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    assert isinstance(wrap(byte_level()).detokenizer([]), ByteLevelDetokenizer)
    assert isinstance(wrap(stripped).detokenizer([]), FastDetokenizer)


def wrap(tokenizer: Tokenizer) -> HuggingFaceTokenizer:
    pretrained: Any = PreTrainedTokenizerFast  # not typed
    return HuggingFaceTokenizer(pretrained(tokenizer_object=tokenizer))
