"""The token indexes of one model, built when a request first needs them."""

from collections.abc import Collection, Iterable, Sequence

from lmi_core.texts.bad_texts.text_ban import TextBan
from lmi_core.texts.bad_texts.token_index import TokenIndex
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer


class TokenIndexes:
    """Two token indexes of a vocabulary: one with the text of special tokens, one without."""

    def __init__(self, tokenizer: HuggingFaceTokenizer, vocabulary: int, eos_token_ids: Collection[int]) -> None:
        """Index a model with `vocabulary` ids, of which `eos_token_ids` end a generation by themselves."""
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._special_ids = tokenizer.special_ids.union(eos_token_ids)  # as in TokenWriter
        self._never_written = tokenizer.hidden_ids - self._special_ids
        self._eos_token_ids = frozenset(eos_token_ids)
        self._indexes: dict[frozenset[int], TokenIndex] = {}  # by the set of ids without text

    def ban(
        self, texts: Iterable[str], *, skip_special_tokens: bool, spaces_between_special_tokens: bool, ignore_end: bool
    ) -> TextBan:
        """Return the ban for a request's texts, which special tokens are part of unless the request skips them."""
        hidden = self._special_ids if skip_special_tokens else frozenset[int]()
        if not ignore_end:  # an end token is not part of the text
            hidden |= self._eos_token_ids
        spaced = frozenset[int]() if skip_special_tokens or not spaces_between_special_tokens else self._special_ids
        return TextBan(self._index(self._never_written | hidden), texts, spaced)

    def _index(self, hidden: frozenset[int]) -> TokenIndex:
        index = self._indexes.get(hidden)
        if index is None:
            known = self._tokenizer.all_token_bytes()[: self._vocabulary]
            index = self._indexes[hidden] = TokenIndex(_without(known, hidden))
        return index


def _without(token_bytes: Sequence[bytes], hidden: Collection[int]) -> list[bytes]:
    return [b"" if token_id in hidden else data for token_id, data in enumerate(token_bytes)]
