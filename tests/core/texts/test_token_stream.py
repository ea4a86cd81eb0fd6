import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmi_core.generation.output import Token
from lmi_core.generation.tokenizer import Detokenizer
from lmi_core.texts.token_stream import StopMatcher, TokenStream

SPECIAL = 99


class Words(Detokenizer):
    """Token i has the i-th text."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def step(self, token_id: int) -> str:
        return self.texts[token_id]


def final_texts(texts: list[str], stops: list[str]) -> tuple[list[list[str]], TokenStream]:
    """The texts that became final after each token."""
    stream = TokenStream(Words(*texts), stops)
    return [[token.text for token in stream.push(place, None)] for place in range(len(texts))], stream


def test_without_stop_sequences_every_token_is_final_at_once() -> None:
    stream = TokenStream(Words("a", ""))
    assert stream.push(0, -0.5) == [Token(0, "a", -0.5)]
    assert stream.push(1, None) == [Token(1, "")]
    assert stream.finish() == []
    assert not stream.stopped


def test_special_tokens_have_no_text_and_are_not_decoded() -> None:
    stream = TokenStream(Words("a"), ["stop"], {SPECIAL})
    assert stream.push(SPECIAL, -1.0) == [Token(SPECIAL, "", -1.0, special=True)]


def test_holds_back_only_what_may_be_the_start_of_a_stop_sequence() -> None:
    steps, stream = final_texts(["hel", "lo", " E", "N", "joy", " it"], ["END"])
    assert steps == [["hel"], ["lo"], [], [], [" E", "N", "joy"], [" it"]]
    assert stream.finish() == []
    assert not stream.stopped


def test_releases_tokens_before_the_part_that_may_go_on() -> None:
    steps, stream = final_texts(["a", "b", "a", "b"], ["abc"])
    assert steps == [[], [], ["a", "b"], []]
    assert [token.text for token in stream.finish()] == ["a", "b"]


def test_cuts_at_a_stop_sequence_that_straddles_tokens() -> None:
    steps, stream = final_texts(["x", "y E", "", "N", "D z"], ["END"])
    assert steps == [["x"], [], [], [], ["y ", "", "", ""]]
    assert stream.stopped
    assert stream.finish() == []


def test_cuts_at_the_stop_sequence_that_begins_first() -> None:
    steps, stream = final_texts(["one two three"], ["three", "two", "e two"])
    assert steps == [["on"]]
    assert stream.stopped


def test_tokens_keep_ids_and_log_probs_when_their_text_is_cut() -> None:
    stream = TokenStream(Words("a", "b", "c"), ["abc"])
    assert stream.push(0, -1.0) == []
    assert stream.push(1, -2.0) == []
    assert stream.push(2, -3.0) == [Token(0, "", -1.0), Token(1, "", -2.0), Token(2, "", -3.0)]


def test_tokens_within_a_character_wait_only_behind_held_text() -> None:
    steps, _ = final_texts(["", "é", "", "", "x"], ["éé"])
    assert steps == [[""], [], [], [], ["é", "", "", "x"]]


@given(st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
def test_joined_texts_are_the_text_up_to_the_first_stop_sequence(numbers: random.Random) -> None:

    def word(longest: int) -> str:
        return "".join(numbers.choice("ab") for _ in range(numbers.randint(0, longest)))

    stops = [word(5) + "a" for _ in range(numbers.randint(1, 3))]
    texts = [word(3) for _ in range(30)]
    stream, tokens, pushed = TokenStream(Words(*texts), stops), list[Token](), 0
    while pushed < len(texts) and not stream.stopped:
        assert not any(stop in "".join(texts[:pushed]) for stop in stops)
        tokens += stream.push(pushed, None)
        pushed += 1
    tokens += stream.finish()
    whole = "".join(texts[:pushed])
    places = [whole.find(stop) for stop in stops if stop in whole]
    assert stream.stopped == bool(places)
    assert "".join(token.text for token in tokens) == whole[: min(places, default=None)]
    assert [token.id for token in tokens] == list(range(pushed))


def test_a_stop_sequence_can_be_kept() -> None:
    stream = TokenStream(Words("x", "y E", "N", "D z"), ["END"], include_stop=True)
    assert [[token.text for token in stream.push(place, None)] for place in range(4)] == [
        ["x"],
        [],
        [],
        ["y E", "N", "D"],
    ]
    assert stream.stopped


def test_of_stop_sequences_that_begin_together_the_shortest_counts() -> None:
    stream = TokenStream(Words("a ENDE"), ["ENDE", "END"], include_stop=True)
    assert [token.text for token in stream.push(0, None)] == ["a END"]
    assert stream.stop_sequence == "END"


def test_a_stop_sequence_of_ids_is_held_back() -> None:
    stream = TokenStream(Words("a", "b", "c", "d"), stop_token_sequences=[[1, 2, 3], [2, 0]])
    steps = [[token.id for token in stream.push(token_id, None)] for token_id in (0, 1, 2, 1, 1, 2)]
    assert steps == [[0], [], [], [1, 2], [1], []]
    assert not stream.stopped
    assert [token.text for token in stream.push(3, None)] == ["", "", ""]
    assert stream.stopped
    assert stream.stop_sequence is None


def test_a_stop_sequence_of_ids_that_is_kept_is_not_held_back() -> None:
    stream = TokenStream(Words("a", "b", "c", "d"), stop_token_sequences=[[1, 2, 3], [2, 0]], include_stop=True)
    for token_id in (0, 1, 2, 1, 1, 2):
        assert [token.id for token in stream.push(token_id, None)] == [token_id]
    assert not stream.stopped
    assert [token.text for token in stream.push(3, None)] == ["d"]
    assert stream.stopped


def test_a_single_stop_token_is_never_waited_for() -> None:
    stream = TokenStream(Words("a", "b"), stop_token_sequences=[[1]])
    assert [token.text for token in stream.push(0, None)] == ["a"]
    assert [token.text for token in stream.push(1, None)] == [""]
    assert stream.stopped


def test_text_may_stop_while_ids_are_waited_for() -> None:
    stream = TokenStream(Words("a", "STOP", "c"), ["STOP"], stop_token_sequences=[[0, 1, 2]])
    assert stream.push(0, None) == []
    assert [token.text for token in stream.push(1, None)] == ["a", ""]
    assert stream.stopped


@pytest.mark.parametrize("spaces", [False, True])
def test_special_tokens_may_have_a_text(spaces: bool) -> None:
    stream = TokenStream(
        Words("a"),
        special_ids={SPECIAL},
        special_text=lambda token_id: f"<{token_id}>",
        spaces_between_special_tokens=spaces,
    )
    texts = [token.text for token_id in (SPECIAL, SPECIAL, 0, SPECIAL) for token in stream.push(token_id, None)]
    assert texts == ["<99>", " <99>" if spaces else "<99>", "a", "<99>"]


@pytest.mark.parametrize("stops", [[], ["c d"]])
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_tokens_that_come_together_are_those_that_come_alone(stops: list[str], size: int) -> None:
    def stream() -> TokenStream:
        return TokenStream(
            Words("a ", "b", " c", " d", "e"), stops, {SPECIAL}, special_text=lambda token_id: f"<{token_id}>"
        )

    ids = [0, SPECIAL, SPECIAL, 1, 1, SPECIAL, SPECIAL, 0, 2, 3, 4, SPECIAL]
    together, alone = stream(), stream()
    expected = [token for token_id in ids if not alone.stopped for token in alone.push(token_id)]
    parts = [ids[place : place + size] for place in range(0, len(ids), size)]
    found = [token for part in [[], *parts] if not together.stopped for token in together.push_all(part)]
    assert found == expected
    assert together.stopped == alone.stopped == bool(stops)
    assert together.finish() == alone.finish()


def test_the_likeliest_tokens_stay_with_their_token() -> None:
    top = [Token(7, "x", -0.1)]
    assert TokenStream(Words("a")).push(0, -0.5, top) == [Token(0, "a", -0.5, top_tokens=top)]


def held_by_definition(text: str, stops: Sequence[str]) -> int:
    return max((n for stop in stops for n in range(len(stop)) if text.endswith(stop[:n])), default=0)


@given(st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_matches_and_held_text_are_those_of_the_whole_text(numbers: random.Random) -> None:
    stops = ["".join(numbers.choices("ab", k=numbers.randint(1, 7))) for _ in range(4)]
    matcher, text = StopMatcher(stops), ""
    for _ in range(40):
        piece = "".join(numbers.choices("abc", [5, 5, 1], k=numbers.randint(0, 4)))
        ends = range(len(text) + 1, len(text) + len(piece) + 1)
        text += piece
        expected = {(end - len(stop), stop) for end in ends for stop in stops if text[:end].endswith(stop)}
        found = matcher.read(piece)
        assert {(match.offset + len(text), match.stop) for match in found} == expected
        assert all(match.length == len(match.stop) for match in found)
        assert matcher.held_length == held_by_definition(text, stops)


class Item:
    """An item that counts how often it is compared."""

    compared = 0

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        Item.compared += 1
        return isinstance(other, Item) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def comparisons(stop: str, text: str) -> int:
    Item.compared = 0
    matcher: Any = StopMatcher([[Item(character) for character in stop]])
    for character in text:
        matcher.read([Item(character)])
    return Item.compared


@pytest.mark.parametrize(
    ("stop", "text"),
    [("a" * 1000 + "b", "a" * 5000), ("ab" * 500 + "c", "ab" * 2500), ("a" * 500 + "b" + "a" * 500, "a" * 5000)],
)
def test_the_time_is_linear_however_much_matches(stop: str, text: str) -> None:
    assert comparisons(stop, text) <= 4 * (len(stop) + len(text))
