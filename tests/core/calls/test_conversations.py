"""Turns of conversations in bounded memory."""

import gc
import weakref

import pytest

from lmi_core.calls.conversations import OVERHEAD, Conversations, Turn
from lmi_core.generation.request import ValidRequest

TURN = OVERHEAD + 10  # bytes of a turn made by `turn`


def turn(previous: Turn | None = None, *items: str) -> Turn:
    return Turn(b"q" * 5, b"a" * 5, previous, items)


def test_the_longest_unused_turn_goes_first() -> None:
    kept = Conversations(3 * TURN)
    for name in ("a", "b", "c"):
        kept.keep(name, turn())
    assert kept.find("a") is not None
    kept.keep("d", turn())
    assert list(kept) == ["c", "a", "d"]
    assert kept.size == 3 * TURN
    assert kept.find("b") is None


def test_turns_of_a_conversation_are_shared() -> None:
    kept = Conversations(10 * TURN)
    first = turn()
    second, other = turn(first), turn(first)
    for name, each in {"first": first, "second": second, "other": other}.items():
        kept.keep(name, each)
    assert kept.size == 3 * TURN
    assert second.conversation() == [first, second]


def test_a_forgotten_turn_stays_for_those_that_go_on_from_it() -> None:
    kept = Conversations(10 * TURN)
    first = turn()
    second = turn(first)
    kept.keep("first", first)
    kept.keep("second", second)
    assert kept.forget("first")
    assert kept.find("first") is None
    assert (len(kept), kept.size) == (1, 2 * TURN)
    assert kept.forget("second")
    assert (len(kept), kept.size) == (0, 0)
    assert not kept.forget("second")


def test_a_turn_that_went_while_the_next_was_generated_is_held_again() -> None:
    kept = Conversations(10 * TURN)
    first = turn()
    kept.keep("first", first)
    kept.forget("first")
    kept.keep("second", turn(first))
    assert kept.size == 2 * TURN
    kept.forget("second")
    assert kept.size == 0


def test_memory_is_bounded_however_long_a_conversation_gets() -> None:
    kept = Conversations(5 * TURN)
    latest: Turn | None = None
    for number in range(5):
        latest = turn(latest)
        kept.keep(str(number), latest)
    assert (len(kept), kept.size) == (5, 5 * TURN)
    kept.keep("other", turn())  # the first turns lose their ids, but the last ones need them
    assert list(kept) == ["other"]
    assert kept.size == TURN


def test_a_conversation_over_the_limit_pushes_nobody_out() -> None:
    kept = Conversations(2 * TURN)
    kept.keep("other", turn())
    kept.keep("long", turn(turn(turn())))
    assert list(kept) == ["other"]
    assert kept.size == TURN


@pytest.mark.parametrize("limit", [0, TURN - 1])
def test_nothing_fits(limit: int) -> None:
    kept = Conversations(limit)
    kept.keep("a", turn(None, "item"))
    assert (len(kept), kept.size, kept.owner("item")) == (0, 0, None)


def test_items_go_with_their_turn() -> None:
    kept = Conversations(2 * TURN)
    first = turn(None, "one", "two")
    kept.keep("first", first)
    assert kept.owner("two") is first
    kept.forget("first")
    assert (kept.owner("one"), kept.owner("two")) == (None, None)


def test_long_conversations_are_freed() -> None:
    kept = Conversations(10**9)
    first = latest = turn()
    for _ in range(100_000):
        latest = turn(latest)
    kept.keep("last", latest)
    assert kept.size == 100_001 * TURN
    kept.forget("last")
    assert kept.size == 0
    assert first.holders == 0


class Answer:
    request_id = "id"
    requests: tuple[ValidRequest, ...] = ()
    key: str | None = "ann"

    def so_far(self, status: str) -> bytes:
        return status.encode()


def test_turns_of_other_keys_are_unknown() -> None:
    kept = Conversations(10 * TURN)
    of_ann = Turn(b"q", b"a", None, ["item"], "ann")
    kept.keep("a", of_ann)
    assert kept.find("a", "ann") is kept.find("a") is of_ann
    assert kept.owner("item", "ann") is kept.owner("item") is of_ann
    assert kept.find("a", "bob") is kept.owner("item", "bob") is None


def test_a_running_answer_is_gone_with_its_call() -> None:
    kept = Conversations(0)
    answer = Answer()
    kept.running["a"] = answer
    seen = weakref.ref(answer)
    found = kept.find_running("a", "ann")
    assert found is kept.find_running("a")
    assert found is not None
    assert found.so_far("in_progress") == b"in_progress"
    assert kept.find_running("a", "bob") is None
    del found
    del answer
    gc.collect()
    assert seen() is None
    assert "a" not in kept.running
