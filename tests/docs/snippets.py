"""Every fenced block of every page, and which test runs it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import PAGES, ROOT

# A block of the page, with the comments that stand before it: <!-- not run: why --> or <!-- file: PATH -->.
FENCE = re.compile(r"((?:^<!-- [^\n]* -->\n)*)^```([a-z]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
FILE = re.compile(r"<!-- file: (\S+) -->")

# Blocks that a test of their page's own runs, by the page's name and the language.
OF_THEIR_OWN = {
    ("anthropic.md", "json"): "test_anthropic.py",
    ("anthropic.md", "python"): "test_anthropic.py",
    ("api.md", "json"): "test_api.py",
    ("deployment.md", "caddy"): "test_proxies.py",
    ("deployment.md", "nginx"): "test_proxies.py",
    ("djl_python.md", "python"): "test_djl_python.py",
    ("djl_python.md", "text"): "test_djl_python.py",
    ("formatters.md", "python"): "test_formatter_examples.py",
    ("formatters.md", "text"): "test_formatter_examples.py",
    ("management.md", "json"): "test_management.py",
    ("management.md", "sh"): "test_management.py",
    ("management.md", "text"): "test_management.py",
    ("model_function.md", "python"): "test_handler_examples.py",
    ("openai.md", "python"): "test_openai.py",
    ("openai.md", "sh"): "test_openai.py",
    ("plugins.md", "python"): "test_examples.py",
    ("offline.md", "python"): "test_offline.py",
    ("responses.md", "python"): "test_responses.py",
    ("sagemaker.md", "python"): "test_sagemaker.py",
    ("testing.md", "python"): "test_testing_example.py",
    ("triton.md", "python"): "test_triton.py",
    ("trtllm.md", "json"): "test_trtllm.py",
    ("trtllm.md", "python"): "test_trtllm.py",
    ("trtllm.md", "sh"): "test_trtllm.py",
    ("trtllm.md", "text"): "test_trtllm.py",
}
# Pages whose blocks are the steps of one session, in their order: test_sessions.py runs them.
SESSIONS = ("tutorial.md", "secure_the_server.md")
# What test_snippets.py can run by itself.
KINDS = ("json", "properties", "python", "sh", "text")


@dataclass(frozen=True)
class Snippet:
    """A fenced block."""

    page: Path
    line: int
    language: str
    text: str
    comments: str
    answer: str = ""  # the block right after it, which shows what it prints

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def reason_not_to_run(self) -> str:
        found = NOT_RUN.search(self.comments)
        return found[1] if found else ""

    @property
    def file(self) -> str:
        found = FILE.search(self.comments)
        return found[1] if found else ""

    @property
    def own_test(self) -> str:
        return OF_THEIR_OWN.get((self.page.name, self.language), "")

    @property
    def in_session(self) -> bool:
        return self.page.name in SESSIONS


def snippets_of(page: Path) -> Iterator[Snippet]:
    """Yield the page's blocks in their order."""
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    for index, block in enumerate(found):
        following = found[index + 1] if index + 1 < len(found) else None
        shows = following and following[2] in ("json", "text") and not text[block.end() : following.start()].strip()
        line = text.count("\n", 0, block.start(2)) + 1
        yield Snippet(page, line, block[2], block[3], block[1], following[3] if following and shows else "")


SNIPPETS = [snippet for page in PAGES for snippet in snippets_of(page)]
