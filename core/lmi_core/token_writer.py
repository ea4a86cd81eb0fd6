"""Writes an engine's tokens in the way that a request asks for."""

from collections.abc import Collection, Iterable, Sequence

from lmi_core.generation import Token
from lmi_core.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.token_stream import TokenStream

Likeliest = Sequence[tuple[int, float]]  # token ids and their log probs, likeliest first


class TokenWriter:
    """One for an engine. `end_ids`: those that end a generation by themselves."""

    def __init__(self, tokenizer: HuggingFaceTokenizer, end_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._end_ids = end_ids
        self._special_ids = end_ids | tokenizer.special_ids

    def sequence(
        self,
        prompt_ids: list[int],
        *,
        stop_sequences: Sequence[str] = (),
        stop_token_sequences: Collection[Sequence[int]] = (),
        include_stop: bool = False,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
        show_end: bool = False,
    ) -> TokenStream:
        """For one sequence that goes on from the prompt. `show_end`: an end token is written as other special ones."""
        hidden = frozenset() if show_end or include_stop else self._end_ids
        return TokenStream(
            self._tokenizer.detokenizer(prompt_ids),
            stop_sequences,
            self._special_ids,
            stop_token_sequences=stop_token_sequences,
            include_stop=include_stop,
            special_text=None if skip_special_tokens else lambda i: "" if i in hidden else self._text(i),
            spaces_between_special_tokens=spaces_between_special_tokens,
        )

    def prompt(
        self,
        ids: Iterable[int],
        log_probs: Iterable[float | None],
        likeliest: Iterable[Likeliest | None],
    ) -> list[Token]:
        """A prompt's own tokens."""
        stream = TokenStream(self._tokenizer.detokenizer([]), special_ids=self._special_ids)
        return [
            token
            for token_id, log_prob, others in zip(ids, log_probs, likeliest, strict=True)
            for token in stream.push(token_id, log_prob, self.top_tokens(others))
        ]

    def top_tokens(self, likeliest: Likeliest | None) -> list[Token] | None:
        """Each with a text of its own, which may be a part of a character."""
        if likeliest is None:
            return None
        return [Token(i, self._text(i), log_prob, i in self._special_ids) for i, log_prob in likeliest]

    def _text(self, token_id: int) -> str:
        return self._tokenizer.token_bytes(token_id).decode(errors="replace")
