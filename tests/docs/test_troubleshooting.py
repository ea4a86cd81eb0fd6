"""The messages that docs/how_to/troubleshooting.md quotes are those that the code has."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import DOCUMENTS, ROOT

PAGE = DOCUMENTS["troubleshooting.md"]
TABLES = re.findall(r"^\| message \|.*?(?:\n\n|\Z)", PAGE, re.MULTILINE | re.DOTALL)
MESSAGES = [line.split("|")[1].strip(" `") for table in TABLES for line in table.strip().splitlines()[2:]]
SHORTEST = 8  # characters of a quoted part that tell one message from others


def literals(tree: ast.AST) -> Iterator[str]:
    """Yield each text of the code, with a NUL for every value that is put into it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
            yield "".join(str(part) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%[sdgr]|\{\w*\}", "\0", node.value)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    sources = [path for folder in ("core", "handlers", "plugins") for path in (ROOT / folder).rglob("*.py")]
    return [text.replace("`", "") for path in sources for text in literals(ast.parse(path.read_text("utf-8")))]


def is_in(message: str, texts: list[str]) -> bool:
    pattern = re.compile(".*".join(re.escape(part) for part in message.split("...")), re.DOTALL)
    return any(pattern.search(text) for text in texts)


def test_messages_are_in_the_code(texts: list[str]) -> None:
    assert [each for each in MESSAGES if max(len(part) for part in each.split("...")) <= SHORTEST] == []
    assert [each for each in MESSAGES if not is_in(each, texts)] == []


def test_there_are_messages() -> None:
    assert len(TABLES) == 4
    assert len(MESSAGES) > 20
