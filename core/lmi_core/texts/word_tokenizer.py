"""A tokenizer without a model, for text backends and tests."""

import re
import threading
from collections.abc import Iterator

from lmi_core.generation.chat import Chat
from lmi_core.generation.tokenizer import Detokenizer, Tokenizer
from lmi_core.texts.chat_template import render_chat

CHAT_TEMPLATE = """\
{% for tool in tools or [] %}tool: {{ tool.function.name }}
{% endfor %}{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"""
MAX_CHARACTERS = 2**24  # of all words, because clients choose them and all are kept
WORD = re.compile(r"<\|\w+\|>|\s*(?:(?!<\|\w+\|>)\S)+|\s+")  # the first is how most models write special tokens


class WordTokenizer(Tokenizer):
    """A tokenizer of words with their leading spaces and of `<|names|>`, which assigns ids in order of first use.

    When it has very many words, it splits new ones into characters, to bound its memory.
    """

    def __init__(self) -> None:
        self.template: str | None = CHAT_TEMPLATE
        self._ids: dict[str, int] = {}
        self._words: list[str] = []
        self._characters = 0
        self._adding = threading.Lock()

    @property
    def vocabulary_size(self) -> int:
        return len(self._words)

    @property
    def eos_token_id(self) -> int:
        return self.id("")

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        # One by one, so that other threads can run in between.
        return [token_id for word in WORD.finditer(text) for token_id in self._word_ids(word.group())]

    def decode(self, token_ids: list[int], skip_special_tokens: bool = True) -> str:
        return "".join(self.word(token_id) for token_id in token_ids)

    def word(self, token_id: int) -> str:
        """Return the text of an id."""
        return self._words[token_id]

    def detokenizer(self, prompt_ids: list[int]) -> Detokenizer:
        return _WordDetokenizer(self)

    def token_bytes(self, token_id: int) -> bytes:
        return self.word(token_id).encode()

    def token_id(self, token: str) -> int | None:
        return self._ids.get(token)

    def chat_template(self, with_tools: bool) -> str | None:
        return self.template

    def render_chat(self, chat: Chat, template: str) -> str:
        return render_chat(chat, template, {})

    def id(self, word: str) -> int:
        """Return the id of a text as one token, assigning a new id if necessary."""
        known = self._ids.get(word)
        if known is not None:
            return known
        with self._adding:
            if word not in self._ids:
                self._words.append(word)
                self._characters += len(word)
                self._ids[word] = len(self._words) - 1
            return self._ids[word]

    def _word_ids(self, word: str) -> Iterator[int]:
        known = self._ids.get(word)
        if known is not None:
            yield known
        elif self._characters + len(word) > MAX_CHARACTERS:
            yield from map(self.id, word)
        else:
            yield self.id(word)


class _WordDetokenizer(Detokenizer):
    def __init__(self, tokenizer: WordTokenizer) -> None:
        self._tokenizer = tokenizer

    def step(self, token_id: int) -> str:
        return self._tokenizer.word(token_id)
