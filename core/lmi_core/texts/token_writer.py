"""Creation of tokens with text in the form that a request requires."""

from collections.abc import Callable, Collection, Iterable, Sequence

from lmi_core.generation.output import Token
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.texts.token_stream import TokenStream

TopLogProbs = Sequence[tuple[int, float]]  # token ids and their log probs, the most likely first


class TokenWriter:
    """An engine's writer of tokens; `eos_token_ids` end a generation."""

    def __init__(self, tokenizer: HuggingFaceTokenizer, eos_token_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._eos_token_ids = eos_token_ids
        self._special_ids = eos_token_ids | tokenizer.special_ids
        self._shown: dict[tuple[str, ...], frozenset[int]] = {}  # special tokens that are part of such markers

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
        markers: tuple[str, ...] = (),
    ) -> TokenStream:
        """Return the stream of a sequence that continues the prompt; `show_end` writes end tokens like special ones.

        Special tokens that are part of one of the `markers` are written even if others are skipped.
        """
        hidden = frozenset() if show_end or include_stop else self._eos_token_ids
        special_text: Callable[[int], str] | None = None
        if not skip_special_tokens:
            special_text = lambda i: "" if i in hidden else self._text(i)  # noqa: E731
        elif shown := self._parts_of(markers) - hidden:
            special_text = lambda i: self._text(i) if i in shown else ""  # noqa: E731
        return TokenStream(
            self._tokenizer.detokenizer(prompt_ids),
            stop_sequences,
            self._special_ids,
            stop_token_sequences=stop_token_sequences,
            include_stop=include_stop,
            special_text=special_text,
            spaces_between_special_tokens=spaces_between_special_tokens and not skip_special_tokens,
        )

    def prompt(
        self,
        ids: Iterable[int],
        log_probs: Iterable[float | None],
        top_log_probs: Iterable[TopLogProbs | None],
        ranks: Sequence[int | None] | None = None,
    ) -> list[Token]:
        """Return a prompt's tokens, each with its log prob, most likely alternatives and rank, if known."""
        stream = TokenStream(self._tokenizer.detokenizer([]), special_ids=self._special_ids)
        tokens = [
            token
            for token_id, log_prob, others in zip(ids, log_probs, top_log_probs, strict=True)
            for token in stream.push(token_id, log_prob, self.top_tokens(others))
        ]
        for token, rank in zip(tokens, ranks or [None] * len(tokens), strict=True):
            token.rank = rank
        return tokens

    def top_tokens(self, top_log_probs: TopLogProbs | None) -> list[Token] | None:
        """Return the most likely tokens, whose texts may be incomplete characters; None if not requested."""
        if top_log_probs is None:
            return None
        return [Token(i, self._text(i), log_prob, i in self._special_ids) for i, log_prob in top_log_probs]

    def _parts_of(self, markers: tuple[str, ...]) -> frozenset[int]:
        if markers not in self._shown:
            texts = {token_id: self._text(token_id) for token_id in self._special_ids} if markers else {}
            self._shown[markers] = frozenset(i for i, text in texts.items() if any(text in each for each in markers))
        return self._shown[markers]

    def _text(self, token_id: int) -> str:
        return self._tokenizer.token_bytes(token_id).decode(errors="replace")
