"""Bans of tokens that would complete a bad text, by an index of the vocabulary."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy

from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer

if TYPE_CHECKING:
    Ids = numpy.ndarray[tuple[int], numpy.dtype[numpy.int64]]

SEPARATOR = b"\xff"  # a byte that never occurs in UTF-8
MAX_KEPT = 128  # cached lookups; a short text is in most tokens


class TokenIndex:
    """A lookup of tokens by a prefix or part of their bytes, without a scan; ids may have no bytes."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        """Index `token_bytes`, the bytes of each id in order."""
        self.token_bytes = token_bytes
        self.max_length = max(map(len, token_bytes), default=0)
        order = sorted(range(len(token_bytes)), key=token_bytes.__getitem__)
        order = order[token_bytes.count(b"") :]
        self._sorted = [token_bytes[i] for i in order]
        self._ids: Ids = numpy.array(order, dtype=numpy.int64)
        self._joined = numpy.frombuffer(SEPARATOR.join(self._sorted), dtype=numpy.uint8)
        self._counts = numpy.bincount(self._joined, minlength=256).tolist()  # number of occurrences of each byte
        lengths = numpy.fromiter(map(len, self._sorted), dtype=numpy.int64, count=len(order))
        self._ends: Ids = (lengths + len(SEPARATOR)).cumsum()  # in `_joined`, after each token's separator
        self.holding = lru_cache(MAX_KEPT)(self._holding)

    def of(self, token_id: int) -> bytes:
        """Return the token's bytes; b"" for an id beyond the vocabulary."""
        return self.token_bytes[token_id] if token_id < len(self.token_bytes) else b""

    def beginning_with(self, start: bytes) -> "Ids":
        """Return the ids of the tokens that start with these bytes."""
        after = start[:-1] + bytes([start[-1] + 1])  # the first bytes that sort after all of them
        return self._ids[bisect_left(self._sorted, start) : bisect_left(self._sorted, after)]

    def _holding(self, part: bytes) -> "Ids":
        """Return the ids of the tokens that contain these bytes."""
        if len(part) > self.max_length:
            return self._ids[:0]
        rarest = min(range(len(part)), key=lambda offset: self._counts[part[offset]])
        places = numpy.flatnonzero(self._joined == part[rarest]) - rarest
        places = places[(places >= 0) & (places <= len(self._joined) - len(part))]
        for offset, byte in enumerate(part):
            places = places[self._joined[places + offset] == byte]
        return self._ids[numpy.unique(self._ends.searchsorted(places, side="right"))]


KEY_LENGTH = 4  # number of trailing bytes by which prefixes of bad texts are indexed


class TextBan:
    """One request's bad texts, without state per sequence, so that tokens may be rolled back at any time.

    Bad texts are matched against the bytes of the generated text only, not in the prompt or across its end. Banning
    every token that would complete a bad text is sufficient, and bans no others.
    """

    def __init__(self, index: TokenIndex, texts: Iterable[str], spaced: Collection[int] = frozenset()) -> None:
        """Ban the texts; `spaced` are the special tokens, if a space is written between consecutive ones."""
        self._index = index
        self._spaced = spaced
        self._texts = _shortest([text.encode(errors="surrogatepass") for text in texts])
        self._beginnings: dict[bytes, list[tuple[bytes, int]]] = {}  # texts and prefix lengths, by last bytes
        for text in self._texts:
            for length in range(max(1, len(text) - index.max_length), len(text)):  # a single token can complete it
                key = text[max(0, length - KEY_LENGTH) : length]
                self._beginnings.setdefault(key, []).append((text, length))
        held = [index.holding(text) for text in self._texts]
        self.always: Ids = numpy.unique(numpy.concatenate(held)) if held else numpy.empty(0, dtype=numpy.int64)

    def completing(self, token_ids: Sequence[int], start: int) -> "Ids | None":
        """Return the banned next ids, besides those `always` banned; generated tokens begin at index `start`."""
        found = [self._index.beginning_with(rest) for rest in self._rests(token_ids, start)]
        if self._is_spaced(token_ids, len(token_ids), start):
            found.append(self._completing_behind_a_blank(token_ids, start))
        found = [ids for ids in found if len(ids)]
        return numpy.concatenate(found) if found else None

    def _rests(self, token_ids: Sequence[int], start: int) -> Iterator[bytes]:
        """Yield the missing rest of each bad text that starts with a suffix of the generated text."""
        tail = self._tail(token_ids, start, KEY_LENGTH)
        found = [each for size in range(1, len(tail) + 1) for each in self._beginnings.get(tail[-size:], ())]
        max_length = max((length for _, length in found), default=0)
        if max_length > len(tail):  # computed only when needed, because there may be thousands
            tail = self._tail(token_ids, start, max_length)
        for text, length in found:
            if tail.endswith(text[:length]):
                yield text[length:]

    def _tail(self, token_ids: Sequence[int], start: int, length: int) -> bytes:
        """Return the last `length` generated bytes, or all if there are fewer."""
        parts: list[bytes] = []
        missing, place = length, len(token_ids) - 1
        while missing > 0 and place >= start:
            part = self._index.of(token_ids[place])
            if part and token_ids[place] in self._spaced and self._is_spaced(token_ids, place, start):
                part = b" " + part
            parts.append(part)
            missing -= len(part)
            place -= 1
        return b"".join(reversed(parts))[-length:]

    def _is_spaced(self, token_ids: Sequence[int], place: int, start: int) -> bool:
        """Return whether the token at index `place` is a special one with a space before it."""
        return place > start and token_ids[place - 1] in self._spaced

    def _completing_behind_a_blank(self, token_ids: Sequence[int], start: int) -> "Ids":
        tail = self._tail(token_ids, start, max(map(len, self._texts)))
        written = ((token_id, self._index.of(token_id)) for token_id in self._spaced)
        found = [i for i, part in written if part and any(text in tail + b" " + part for text in self._texts)]
        return numpy.array(found, dtype=numpy.int64)


def _shortest(texts: Iterable[bytes]) -> list[bytes]:
    """Return the texts that contain no other one; banning these bans all of them."""
    kept: list[bytes] = []
    for text in sorted(set(texts), key=len):
        if not any(shorter in text for shorter in kept):
            kept.append(text)
    return kept


class TokenIndexes:
    """Two indexes of a vocabulary: one with the text of special tokens, one without."""

    def __init__(self, tokenizer: HuggingFaceTokenizer, vocabulary: int, eos_token_ids: Collection[int]) -> None:
        """Index a model with `vocabulary` ids; `eos_token_ids` end a generation."""
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._special_ids = tokenizer.special_ids.union(eos_token_ids)  # as in TokenWriter
        self._eos_token_ids = frozenset(eos_token_ids)
        self._indexes: dict[frozenset[int], TokenIndex] = {}  # by the set of ids without text

    def ban(
        self, texts: Iterable[str], *, skip_special_tokens: bool, spaces_between_special_tokens: bool, ignore_end: bool
    ) -> TextBan:
        """Return the ban for a request's texts; special tokens are part of the text unless the request skips them."""
        hidden = self._special_ids if skip_special_tokens else frozenset[int]()
        if not ignore_end:  # an end token is not part of the text
            hidden |= self._eos_token_ids
        spaced = frozenset[int]() if skip_special_tokens or not spaces_between_special_tokens else self._special_ids
        return TextBan(self._index(hidden), texts, spaced)

    def _index(self, hidden: frozenset[int]) -> TokenIndex:
        index = self._indexes.get(hidden)
        if index is None:
            known = enumerate(self._tokenizer.all_token_bytes()[: self._vocabulary])
            shown = [b"" if token_id in hidden else data for token_id, data in known]
            index = self._indexes[hidden] = TokenIndex(shown)
        return index
