"""Vectors take turns with streams."""

from lmi_plugins.torch_engine.embeddings.pace import Pace


def test_steps_of_vectors_wait_until_generation_has_allowed_for_them() -> None:
    pace = Pace()
    turns = []
    for _ in range(30):
        pace.generated(20)
        turns.append(pace.is_due)
        if pace.is_due:
            pace.embedded(100)
    assert turns.count(True) == 6, "100 tokens at a time, 20 allowed for by each step of generation"
    assert turns[:6] == [True, False, False, False, False, True]


def test_what_was_not_used_is_not_saved_up() -> None:
    pace = Pace()
    for _ in range(100):
        pace.generated(20)
    pace.embedded(20)
    assert not pace.is_due


def test_nothing_waits_where_nothing_generates() -> None:
    pace = Pace()
    pace.embedded(1000)
    assert not pace.is_due
    pace.reset()
    assert pace.is_due
