import pytest

from lmi_core.parsing.tool_calls.text_reader import TextReader, Waiting


def run(read: Waiting[object], reader: TextReader, parts: list[str]) -> tuple[object, int]:
    """Return what is read of the text that comes in parts, and how many of them it took."""
    for count, part in enumerate([*parts, None]):
        if part is None:
            reader.ended = True
        else:
            reader.add(part)
        try:
            next(read)
        except StopIteration as stop:
            return stop.value, count + 1
    raise AssertionError("still waiting at the end of the text")


@pytest.mark.parametrize(
    ("parts", "markers", "expected"),
    [
        (["a<b>c"], ("<b>",), (("a", "<b>"), 1)),
        (["a<", "b", ">c"], ("<b>",), (("a", "<b>"), 3)),
        (["a<", "c"], ("<b>",), (("a<c", ""), 3)),
        (["<a"], ("<a", "<ab"), (("", "<a"), 2)),
        (["<a", "b"], ("<a", "<ab"), (("", "<ab"), 2)),
        (["<a", "c"], ("<a", "<ab"), (("", "<a"), 2)),
        (["xab", "d"], ("ab", "xabc"), (("x", "ab"), 2)),
        (["xab", "c"], ("ab", "xabc"), (("", "xabc"), 2)),
    ],
)
def test_until(parts: list[str], markers: tuple[str, ...], expected: object) -> None:
    reader = TextReader()
    assert run(reader.read_until(*markers), reader, parts) == expected


@pytest.mark.parametrize(
    ("parts", "markers", "expected"),
    [
        (["<a>b"], ("<a>",), ("<a>", 1)),
        (["<", "a>"], ("<a>",), ("<a>", 2)),
        (["<", "b"], ("<a>",), ("", 2)),
        (["a", "b"], ("a", "ab"), ("ab", 2)),
        (["a"], ("a", "ab"), ("a", 2)),
        ([], ("a",), ("", 1)),
        (["a"], (), ("", 1)),
    ],
)
def test_one_of(parts: list[str], markers: tuple[str, ...], expected: object) -> None:
    reader = TextReader()
    assert run(reader.read_marker(*markers), reader, parts) == expected


def test_optional_marker_is_read_with_the_blanks_before_it_or_not_at_all() -> None:
    reader = TextReader()
    assert run(reader.optional("b"), reader, [" ", "b "]) == ("b", 2)
    assert run(reader.optional("b"), reader, ["c"]) == ("", 1)
    assert reader.unread == " c"


def test_rewind() -> None:
    reader = TextReader()
    assert run(reader.read_until("b"), reader, ["abc"]) == (("a", "b"), 1)
    reader.forget()
    mark = reader.mark()
    assert run(reader.peek(2), reader, ["d"]) == ("cd", 1)
    reader.skip(1)
    assert reader.unread == "d"
    reader.rewind(mark)
    assert reader.unread == "cd"
