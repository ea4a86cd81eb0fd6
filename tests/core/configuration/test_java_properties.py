import pytest

from lmi_core.configuration.java_properties import Entry, parse
from lmi_core.errors import ConfigurationError


def pairs(text: str) -> list[tuple[str, str]]:
    return [(entry.key, entry.value) for entry in parse(text)]


@pytest.mark.parametrize(
    "line",
    [
        "engine=MPI",
        "engine:MPI",
        "engine MPI",
        "engine\tMPI",
        "engine = MPI",
        "engine : MPI",
        "  engine  MPI",
        "\fengine\fMPI",
    ],
)
def test_separators(line: str) -> None:
    assert pairs(line) == [("engine", "MPI")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a==b", ("a", "=b")),
        ("a = : b", ("a", ": b")),
        ("a b=c", ("a", "b=c")),
        ('option.speculative_config={"model": "x"}', ("option.speculative_config", '{"model": "x"}')),
        ("url=https://host:8080/a=b", ("url", "https://host:8080/a=b")),
        ("a=b # no comment", ("a", "b # no comment")),
        ("a=trailing blanks \t", ("a", "trailing blanks \t")),
        ("a=", ("a", "")),
        ("a", ("a", "")),
        ("=b", ("", "b")),
    ],
)
def test_where_the_value_begins(line: str, expected: tuple[str, str]) -> None:
    assert pairs(line) == [expected]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (r"a\=b=c", ("a=b", "c")),
        (r"a\:b:c", ("a:b", "c")),
        (r"a\ b c", ("a b", "c")),
        (r"\#a=b", ("#a", "b")),
        (r"a=\t\n\r\f", ("a", "\t\n\r\f")),
        (r"a=C:\\models", ("a", r"C:\models")),
        (r"a=\m\o\'\"", ("a", "mo'\"")),
        (r"a=\ leading blank", ("a", " leading blank")),
        (r"a\\=b", ("a\\", "b")),
    ],
)
def test_escapes(line: str, expected: tuple[str, str]) -> None:
    assert pairs(line) == [expected]


@pytest.mark.parametrize(
    ("escaped", "expected"),
    [
        (r"\u0041", "A"),
        (r"\u00e9\u00E9", "éé"),
        (r"\u00410", "A0"),
        (r"\ud83d\ude00", "😀"),
        (r"\\u0041", r"\u0041"),
        ("é😀", "é😀"),
        (r"\U0041", "U0041"),
    ],
)
def test_unicode(escaped: str, expected: str) -> None:
    assert pairs(f"{escaped}={escaped}") == [(expected, expected)]


@pytest.mark.parametrize("escaped", [r"\u", r"\u12", r"\u00g0", r"\u+041", r"\u 041", r"\ud83d", r"\ude00\ud83d"])
def test_malformed_unicode_names_the_line(escaped: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^serving\.properties:3: .*Given: \\u") as raised:
        parse(f"# comment\n\nname={escaped}\n")
    assert "\n" not in raised.value.message


def test_error_names_the_source() -> None:
    with pytest.raises(ConfigurationError, match=r"^config\.properties:1: "):
        parse(r"a=\u", "config.properties")


@pytest.mark.parametrize("text", ["", "\n\n", "   \t\f\n", "# a=b", "! a=b", "  # a=b", "# a=b\\"])
def test_nothing_to_read(text: str) -> None:
    assert parse(text) == []


def test_comment_is_not_continued() -> None:
    assert pairs("# comment \\\na=b") == [("a", "b")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b\\\n    c", [("a", "bc")]),
        ("a=b \\\n\t\f c", [("a", "b c")]),
        ("a=b\\\r\nc\\\rd", [("a", "bcd")]),
        ("a\\\n=b", [("a", "b")]),
        ("a=b\\\n# c", [("a", "b# c")]),
        ("a=b\\\n\nc=d", [("a", "b"), ("c", "d")]),
        ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
        ("a=b\\\\\\\nc=d", [("a", "b\\c=d")]),
        ("\\\n# comment\na=b", [("a", "b")]),
        ("a=b\\", [("a", "b")]),
    ],
)
def test_continuation(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_line_ends(end: str) -> None:
    assert parse(end.join(["a=b", "", "c=d", ""])) == [Entry("a", "b", 1), Entry("c", "d", 3)]


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_other_line_separators_are_text(character: str) -> None:
    assert pairs(f"a=b{character}c") == [("a", f"b{character}c")]


def test_byte_order_mark() -> None:
    assert pairs("\ufeffengine=MPI") == [("engine", "MPI")]


def test_repeated_keys_are_kept_in_order() -> None:
    assert parse("a=1\nb=2\na=3") == [Entry("a", "1", 1), Entry("b", "2", 2), Entry("a", "3", 3)]


def test_line_of_a_continued_entry_is_its_first() -> None:
    assert parse("\na=b\\\n  c\nd=e") == [Entry("a", "bc", 2), Entry("d", "e", 4)]
