"""Docstrings are sentences that stand alone, and messages keep to one form for each kind."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TREES = ("core", "handlers", "plugins", "examples", "tests", "tools")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# First words that need the text before them: prepositions, conjunctions and pronouns.
FRAGMENT = re.compile(
    r"(Of|As|That|With|In|To|From|On|By|At|Against|Under|Among|Between|Beside|Its|It|They|Their|These|Those|Who|Whose|"
    r"Which|Where|Also|And|But|Or|So|Then|Not|Because|Such|Raises)\b"
)
# Verbs that say what a file does, where the others name what it holds.
THIRD_PERSON = re.compile(
    r"(Adds|Chooses|Compiles|Computes|Converts|Fills|Finds|Follows|Gives|Keeps|Knows|Lets|Loads|Makes|Reads|Refuses|"
    r"Returns|Starts|Takes|Tells|Translates|Tries|Works|Writes|Yields)\b"
)
RAISES = re.compile(r"\. Raises [A-Z]")  # after another sentence: "Raise X where ..."
ONLY_RAISES = re.compile(r"Raises? [A-Z]\w+((,|, or| or|, and| and) [A-Z]\w+)*\.?$")
# Forms of messages that have another one everywhere.
UNUSUAL = {
    r"(?<!there )\bis no (field|parameter|tensor|host|URL|number|folder|adapter|key)\b": "is not a ...",
    r"\bexclude each other\b": "cannot be used together",
    r"\bmust come with\b": "requires",
    r"\bmust hold\b": "must contain",
    r"\bgives way to\b": "is overridden by",
    r"\blikeliest\b": "most likely",
    r"\bnobody (here )?knows\b": "is unknown",
    r"^Answer with\b": "Return",
    r"^(The m|M)ost [a-z]+ (that|in|of|to)\b": "Maximum ...",
}


def trees_of(root: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / root).rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each string literal with spaces that is not a docstring, and the constant parts of f-strings."""
    skipped = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def is_fragment(text: str) -> bool:
    return any((FRAGMENT.match(text), ONLY_RAISES.match(text), RAISES.search(" ".join(text.split()))))


@pytest.mark.parametrize("root", TREES)
def test_docstrings_stand_alone(root: str) -> None:
    found = [f"{path}:{line}: {text}" for path, tree in trees_of(root) for line, text in docstrings(tree)]
    assert found
    assert [each for each in found if is_fragment(each.split(": ", 1)[1])] == []


@pytest.mark.parametrize("root", ["core", "handlers", "plugins", "examples", "tools"])
def test_docstrings_are_imperative_or_noun_phrases(root: str) -> None:
    found = [f"{path}:{line}: {text}" for path, tree in trees_of(root) for line, text in docstrings(tree)]
    assert found
    assert [each for each in found if THIRD_PERSON.match(each.split(": ", 1)[1])] == []


@pytest.mark.parametrize("root", ["core", "handlers", "plugins"])
def test_messages_keep_to_one_form(root: str) -> None:
    found = [f"{path}:{line}: {text}" for path, tree in trees_of(root) for line, text in strings(tree)]
    assert found
    for pattern, instead in UNUSUAL.items():
        unusual = [each for each in found if re.search(pattern, each.split(": ", 1)[1])]
        assert unusual == [], f"write {instead!r}"


@pytest.mark.parametrize(
    "text", ["Of one chunk.", "Raises InvalidPayload.", "Raise InvalidPayload, or OSError.", "That is it.", "Its name."]
)
def test_fragments_are_found(text: str) -> None:
    assert is_fragment(text)


@pytest.mark.parametrize("text", ["Return a model.", "Raise OSError for a full disk.", "A model.", "OpenAI's chats."])
def test_sentences_are_not_fragments(text: str) -> None:
    assert not is_fragment(text)
