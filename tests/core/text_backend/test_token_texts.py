"""Texts become tokens whose texts joined are exactly what was generated, up to a stop sequence or the limit."""

import pytest

from lmi_core.generation.output import Token
from lmi_core.generation.tokenizer import Detokenizer
from lmi_core.text_backend.token_texts import TextTokens, prompt_tokens
from lmi_core.texts.word_tokenizer import WordTokenizer


class LowerCaseTokenizer(WordTokenizer):
    """A tokenizer that cannot write what it reads: without upper case and blanks, in pairs of characters."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        small = text.lower().strip()
        return [self.id(small[place : place + 2]) for place in range(0, len(small), 2)]

    def detokenizer(self, prompt_ids: list[int]) -> Detokenizer:
        return super().detokenizer(prompt_ids)


class HidingTokenizer(WordTokenizer):
    """A tokenizer whose special tokens have no text, as in models."""

    def detokenizer(self, prompt_ids: list[int]) -> Detokenizer:
        return _HidingDetokenizer(self)


class _HidingDetokenizer(Detokenizer):
    def __init__(self, tokenizer: WordTokenizer) -> None:
        self._tokenizer = tokenizer

    def step(self, token_id: int) -> str:
        text = self._tokenizer.word(token_id)
        return "" if text.startswith("<|") else text


def texts(tokens: list[Token]) -> list[str]:
    return [token.text for token in tokens]


def generated(pieces: list[str], stop: tuple[str, ...] = (), limit: int = 100) -> tuple[list[str], TextTokens]:
    """Return the text of each token, and the state at the end, for pieces as a backend reads them."""
    state = TextTokens(WordTokenizer(), stop, limit)
    found: list[str] = []
    for piece in pieces:
        found += texts(state.push(piece))
        if state.stopped or state.is_full:
            break
    return found + ([] if state.stopped else texts(state.finish())), state


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([], []),
        (["one two"], ["one", " two"]),
        (["one ", "two ", "three"], ["one", " two", " three"]),
        (["one", " two", "\n"], ["one", " two", "\n"]),
        (["o", "n", "e"], ["o", "n", "e"]),
        (["", " ", "", " one"], ["  one"]),
    ],
)
def test_tokens_of_pieces(pieces: list[str], expected: list[str]) -> None:
    found, state = generated(pieces)
    assert (found, state.count, state.stopped) == (expected, len(expected), False)


@pytest.mark.parametrize(
    ("pieces", "stop", "expected"),
    [
        (["one two three"], " two", ["one", ""]),
        (["one t", "wo three"], " two", ["one", "", ""]),
        (["one", "\n", "\nUser: two"], "\n\nUser:", ["one", ""]),
        (["one\n", "\n", "two"], "\n\n", ["one", "", ""]),
        (["one t", "en"], " two", ["one", " t", "en"]),
        (["one t"], " two", ["one", " t"]),
    ],
)
def test_stop_sequences_that_span_pieces(pieces: list[str], stop: str, expected: list[str]) -> None:
    found, state = generated(pieces, (stop,))
    text, _, after = "".join(pieces).partition(stop)
    assert found == expected
    assert "".join(found) == text
    assert state.stop_sequence == (stop if after or "".join(pieces).endswith(stop) else None)


def test_blanks_that_end_a_stop_sequence_are_not_waited_for() -> None:
    state = TextTokens(WordTokenizer(), ("\n",), 100)
    assert texts(state.push("one\n")) == ["one", ""]
    assert state.stopped


@pytest.mark.parametrize(("limit", "expected"), [(1, ["one"]), (2, ["one", " two"]), (3, ["one", " two", " three"])])
def test_limit(limit: int, expected: list[str]) -> None:
    for pieces in (["one two three four"], ["one ", "two ", "three ", "four"]):
        found, state = generated(pieces, limit=limit)
        assert (found, state.is_full) == (expected, True)


def test_what_may_begin_a_stop_sequence_comes_at_the_limit() -> None:
    found, state = generated(["one two"], (" two three",), limit=2)
    assert (found, state.stopped, state.is_full) == (["one", " two"], False, True)


def test_a_vocabulary_that_cannot_write_the_text() -> None:
    state = TextTokens(LowerCaseTokenizer(), (), 100)
    tokens = state.push("One Two") + state.push(" ") + state.push(" THREE") + state.push(" ") + state.finish()
    assert "".join(texts(tokens)) == "One Two  THREE "
    assert len(tokens) == 4 + 3 + 1


def test_tokens_of_a_prompt() -> None:
    tokenizer = WordTokenizer()
    first, second = prompt_tokens(tokenizer, tokenizer.encode("one two"))
    assert (first.text, first.log_prob, first.rank) == ("one", None, None)
    assert (second.text, second.log_prob, second.rank) == (" two", 0.0, 1)


def test_special_tokens_have_their_names_as_texts() -> None:
    state = TextTokens(HidingTokenizer(), (), 100)
    assert texts(state.push("<|channel|>final<|message|>It rains.")) == [
        "<|channel|>",
        "final",
        "<|message|>",
        "It",
        " rains.",
    ]
