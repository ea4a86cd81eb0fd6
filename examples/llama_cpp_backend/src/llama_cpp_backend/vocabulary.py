"""The tokenizer in a GGUF file, as llama.cpp applies it."""

import codecs
import weakref
from ctypes import create_string_buffer
from typing import Any

import llama_cpp
import numpy as np

from lmi import Chat, Detokenizer, Tokenizer, render_chat

HIDDEN = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN


class Vocabulary(Tokenizer):
    """The vocabulary of a loaded model, which is freed with it. `end_ids` end a text."""

    def __init__(self, model: Any) -> None:
        self._model = model
        weakref.finalize(self, llama_cpp.llama_model_free, model).atexit = False  # its thread may still use it then
        self._vocab = llama_cpp.llama_model_get_vocab(model)
        ids = range(llama_cpp.llama_vocab_n_tokens(self._vocab))
        self._pieces = [self._piece(token_id) for token_id in ids]
        self.whole_characters = np.array([_is_text(piece) for piece in self._pieces])
        self.end_ids = frozenset(i for i in ids if llama_cpp.llama_vocab_is_eog(self._vocab, i))
        hidden = (i for i in ids if llama_cpp.llama_vocab_get_attr(self._vocab, i) & HIDDEN)
        self.special_ids = self.end_ids.union(hidden)

    @property
    def handle(self) -> Any:
        """The vocabulary as llama.cpp's functions take it."""
        return self._vocab

    @property
    def vocabulary_size(self) -> int:
        return len(self._pieces)

    @property
    def eos_token_id(self) -> int | None:
        token_id = llama_cpp.llama_vocab_eos(self._vocab)
        return None if token_id == llama_cpp.LLAMA_TOKEN_NULL else int(token_id)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        data = text.encode(errors="replace")
        found = (llama_cpp.llama_token * (len(data) + 2))()  # no token is empty but the special ones around a text
        count = llama_cpp.llama_tokenize(self._vocab, data, len(data), found, len(found), add_special_tokens, True)
        return list(found[:count])

    def decode(self, token_ids: list[int], skip_special_tokens: bool = True) -> str:
        ids = [i for i in token_ids if not (skip_special_tokens and i in self.special_ids)]
        return b"".join(self._pieces[i] for i in ids).decode(errors="replace")

    def detokenizer(self, prompt_ids: list[int]) -> Detokenizer:
        return _PieceDetokenizer(self)

    def token_bytes(self, token_id: int) -> bytes:
        return self._pieces[token_id]

    def text(self, token_id: int) -> str:
        """Return the text of one token, special or not."""
        return self._pieces[token_id].decode(errors="replace")

    def token_id(self, token: str) -> int | None:
        ids = self.encode(token, add_special_tokens=False)
        return ids[0] if len(ids) == 1 and self.text(ids[0]) == token else None

    def chat_template(self, with_tools: bool) -> str | None:
        found = llama_cpp.llama_model_chat_template(self._model, b"tool_use") if with_tools else None
        found = found or llama_cpp.llama_model_chat_template(self._model, None)
        return None if found is None else found.decode()

    def render_chat(self, chat: Chat, template: str) -> str:
        ends = {"bos_token": llama_cpp.llama_vocab_bos, "eos_token": llama_cpp.llama_vocab_eos}
        ids = {name: find(self._vocab) for name, find in ends.items()}
        return render_chat(chat, template, {name: self.text(i) for name, i in ids.items() if i >= 0})

    def _piece(self, token_id: int) -> bytes:
        size = 64
        while True:
            buffer = create_string_buffer(size)
            count = llama_cpp.llama_token_to_piece(self._vocab, token_id, buffer, size, 0, True)
            if count >= 0:
                return buffer.raw[:count]
            size = -count


def _is_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


class _PieceDetokenizer(Detokenizer):
    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def step(self, token_id: int) -> str:
        if token_id in self._vocabulary.special_ids:
            return ""
        return self._decoder.decode(self._vocabulary.token_bytes(token_id))
