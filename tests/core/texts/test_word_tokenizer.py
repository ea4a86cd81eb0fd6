"""The tokenizer of words needs no model, and its memory has a bound."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from lmi_core.texts import word_tokenizer
from lmi_core.texts.word_tokenizer import WordTokenizer


@pytest.fixture
def tokenizer() -> WordTokenizer:
    return WordTokenizer()


@pytest.mark.parametrize("text", ["", "one", " one two", "one  two ", "\n", "één\ttwo\n\n"])
def test_texts_come_back(text: str, tokenizer: WordTokenizer) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    detokenizer = tokenizer.detokenizer([])
    assert "".join(map(detokenizer.step, ids)) == text
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()


def test_one_id_for_each_word(tokenizer: WordTokenizer) -> None:
    assert tokenizer.encode("a b a b  b") == [0, 1, 2, 1, 3]
    assert tokenizer.vocabulary_size == 4
    assert (tokenizer.token_id(" b"), tokenizer.token_id("c")) == (1, None)


def test_new_words_are_not_kept_without_end(tokenizer: WordTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_tokenizer, "MAX_CHARACTERS", 13)
    assert tokenizer.encode("one two three four one") == [0, 1, 2, 3, 4, 5, 6, 7, 3, 5, 8, 9]
    assert tokenizer.decode(tokenizer.encode("one four three")) == "one four three"
    assert tokenizer.encode("one two three") == [0, 1, 2]
    assert len(tokenizer.encode("ab" * 100)) == 200


def test_threads_agree_on_ids(tokenizer: WordTokenizer) -> None:
    text = " ".join(map(str, range(2000)))
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: tokenizer.encode(text), range(8)))
    assert all(each == ids[0] for each in ids)
    assert tokenizer.decode(ids[0]) == text
