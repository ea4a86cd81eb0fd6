"""Whatever a client's text makes a tokenizer or a chat template do, the event loop and other requests go on."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lmi_core.deadlines import bounded
from lmi_core.deadlines.bounded import NeedsTimeError, without_delay
from lmi_core.errors import InvalidParameter
from lmi_core.forks.forked_function import CallTooCostlyError
from lmi_core.generation.chat import Chat
from lmi_core.host.off_loop import LONG_TEXT, run_off_loop
from lmi_core.texts import huggingface_tokenizer
from lmi_core.texts.chat_template import MAX_CODES, MAX_KEPT, _codes, render
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from tests.longest_gap import event_loop_watched

HELLO = Path(__file__).parents[3] / "examples" / "hello"
COSTLY = r"(x+x+)+y"
WORD = "x" * 22 + " "  # 0.1 seconds and more
HELD = 0.5  # seconds, of which a busy machine takes some; all words take several
LIMIT = 60.0
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


def tokenizer(expression: str) -> HuggingFaceTokenizer:
    """Return examples/hello's tokenizer with an expression before all else."""
    backend: Any = Tokenizer.from_file(str(HELLO / "tokenizer.json"))
    split = pre_tokenizers.Split(Regex(expression), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, backend.pre_tokenizer])
    pretrained: Any = PreTrainedTokenizerFast
    return HuggingFaceTokenizer(pretrained(tokenizer_object=backend))


async def test_a_costly_text_holds_neither_the_event_loop_nor_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MAX_SECONDS", 0.2)
    monkeypatch.setattr(bounded, "THREAD_SECONDS", 0.2)
    costly = tokenizer(COSTLY)
    async with event_loop_watched() as gap, asyncio.timeout(LIMIT):
        for size in (0, LONG_TEXT + 1):
            with pytest.raises(InvalidParameter, match=r"cannot read the text: it takes more than 0\.2\d+ seconds"):
                await run_off_loop(size, lambda: costly.encode(WORD * 80))
            ids = await run_off_loop(size, lambda: costly.encode("hello"))
            assert ids == HuggingFaceTokenizer.load(str(HELLO)).encode("hello")
    assert gap.seconds < HELD


def test_texts_are_the_same_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "THREAD_SECONDS", 0)
    text = "Hello, xxxy and 12 others" * 100
    slow = tokenizer(r"[x]+y?")
    assert slow.encode(text) == slow.pretrained.encode(text)
    assert slow.encode(text, add_special_tokens=False) == slow.pretrained.encode(text, add_special_tokens=False)


def test_a_long_text_is_encoded_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_tokenizer, "APART", 100)
    monkeypatch.delattr(bounded.Bounded, "run")
    hello = HuggingFaceTokenizer.load(str(HELLO))
    text = "Hello and 12 others" * 10
    assert hello.encode(text) == hello.pretrained.encode(text)


def test_an_endless_template_gives_way_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MAX_SECONDS", 0.2)
    chat = Chat([{"role": "user", "content": "Hello"}])
    with pytest.raises(NeedsTimeError):
        without_delay(lambda: render(chat, ENDLESS, {}))
    with pytest.raises(CallTooCostlyError, match=r"it takes more than 0\.2 seconds"):
        render(chat, ENDLESS, {})


def test_a_clients_template_is_never_rendered_in_the_server() -> None:
    _codes.clear()
    chat = Chat([{"role": "user", "content": "Hello"}], template_of_client=True)
    with pytest.raises(NeedsTimeError):
        without_delay(lambda: render(chat, "{{ messages[0].content }}", {}))
    for number in [*range(MAX_CODES + 1), MAX_CODES]:
        assert render(chat, f"{{{{ messages[0].content }}}} {number}", {}) == f"Hello {number}"
    assert len(_codes) == 1
    long = "x" * (MAX_KEPT // 2)
    assert render(chat, long, {}) == long
    assert long not in _codes


def test_jinja_is_not_imported_while_the_event_loop_waits() -> None:
    code = (
        "import sys\n"
        "from lmi_core.generation.chat import Chat\n"
        "from lmi_core.texts.chat_template import render\n"
        "from lmi_core.deadlines.bounded import NeedsTimeError, without_delay\n"
        "try:\n"
        "    without_delay(lambda: render(Chat([{'role': 'user', 'content': 'Hello'}]), '{{ 1 }}', {}))\n"
        "except NeedsTimeError:\n"
        "    print('jinja2' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
