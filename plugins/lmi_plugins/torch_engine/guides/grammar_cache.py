"""Compiled grammars, and the guides that were refused."""

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from lmi_core.errors import InvalidParameter

if TYPE_CHECKING:
    from xgrammar import CompiledGrammar

MAX_BYTES = 64 * 2**20  # size of the compiled grammars
MAX_ENTRIES = 2000


class GrammarCache:
    """The outcomes of the most recently used guides: a grammar, None for one that vLLM compiles, or a refusal."""

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, CompiledGrammar | str | None] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0  # size of the grammars

    def __len__(self) -> int:
        return len(self._entries)

    def has(self, key: bytes) -> bool:
        with self._lock:
            return key in self._entries

    def get(self, key: bytes) -> "CompiledGrammar | None":
        """Return a guide's grammar, None if it is unknown; raise InvalidParameter if it was refused."""
        with self._lock:
            entry = self._entries.get(key)
            if key in self._entries:
                self._entries.move_to_end(key)
        if isinstance(entry, str):
            raise InvalidParameter(entry)
        return entry

    def keep(self, key: bytes, grammar: "CompiledGrammar | None") -> None:
        self._put(key, grammar)

    def refuse(self, key: bytes, message: str) -> None:
        """Make later requests with this guide raise InvalidParameter."""
        self._put(key, message)

    def _put(self, key: bytes, entry: "CompiledGrammar | str | None") -> None:
        with self._lock:
            self.bytes += _bytes(entry) - _bytes(self._entries.pop(key, ""))
            self._entries[key] = entry
            while len(self._entries) > MAX_ENTRIES or (self.bytes > MAX_BYTES and len(self._entries) > 1):
                self.bytes -= _bytes(self._entries.popitem(last=False)[1])


def _bytes(entry: "CompiledGrammar | str | None") -> int:
    return 0 if entry is None or isinstance(entry, str) else int(entry.memory_size_bytes)
