"""Conversion of texts of any length to tokens; the joined texts of the tokens equal the input."""

from collections.abc import Sequence

from lmi_core.generation.output import Token
from lmi_core.generation.tokenizer import Detokenizer, Tokenizer
from lmi_core.texts.token_stream import TokenStream

CERTAIN = 0.0  # the log probability of a text that has no alternative
NO_ID = 0  # the id of a text that is not in the vocabulary


class TextTokens:
    """The tokens of one sequence's text while it is generated, up to a stop sequence or a number of tokens."""

    def __init__(
        self, tokenizer: Tokenizer, stop_sequences: Sequence[str], max_tokens: int, *, include_stop: bool = False
    ) -> None:
        self.count = 0  # number of tokens, including a stop sequence
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._texts = _GivenTexts()
        self._stream = TokenStream(self._texts, stop_sequences, include_stop=include_stop)
        self._holds_blanks = not any(stop[-1].isspace() for stop in stop_sequences)
        self._blanks = ""  # belong to the next token, as in most vocabularies

    @property
    def stopped(self) -> bool:
        """Whether a stop sequence ended the text."""
        return self._stream.stopped

    @property
    def stop_sequence(self) -> str | None:
        """The stop sequence that ended the text."""
        return self._stream.stop_sequence

    @property
    def is_full(self) -> bool:
        """Whether the maximum number of tokens is reached."""
        return self.count >= self._max_tokens

    def push(self, text: str) -> list[Token]:
        """Process a generated text, and return the tokens that are final now."""
        text, self._blanks = self._blanks + text, ""
        if self._holds_blanks:
            kept = text.rstrip()
            text, self._blanks = kept, text[len(kept) :]
        return self._tokens(text)

    def finish(self) -> list[Token]:
        """Return the tokens still held back, at the end of the sequence."""
        blanks, self._blanks = self._blanks, ""
        ended = self.is_full or self.stopped
        return [*(() if ended else self._tokens(blanks)), *self._stream.finish()]

    def _tokens(self, text: str) -> list[Token]:
        tokens: list[Token] = []
        ids = (self._tokenizer.encode(text, add_special_tokens=False) or [NO_ID]) if text else []
        for token_id, part in zip(ids, self._parts(text, ids), strict=True):
            self._texts.next = part
            tokens += self._stream.push(token_id, CERTAIN, rank=1)
            self.count += 1
            if self.is_full or self.stopped:
                break
        return tokens

    def _parts(self, text: str, ids: list[int]) -> list[str]:
        """Return the part of the text that each id represents."""
        detokenizer = self._tokenizer.detokenizer([])
        parts: list[str] = []
        place = 0
        for token_id in ids:
            part = detokenizer.step(token_id)
            if not part:  # a special token, or one that ends inside a character
                name = self._tokenizer.token_bytes(token_id).decode(errors="replace")
                part = name if text.startswith(name, place) else ""
            parts.append(part)
            place += len(part)
        if "".join(parts) == text:
            return parts
        # The vocabulary cannot express it, because it normalizes blanks or upper case
        return _even_parts(text, len(ids))


class _GivenTexts(Detokenizer):
    """A detokenizer whose texts are given."""

    next = ""

    def step(self, token_id: int) -> str:
        return self.next


def _even_parts(text: str, count: int) -> list[str]:
    return [text[len(text) * i // count : len(text) * (i + 1) // count] for i in range(count)]


def prompt_tokens(tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> list[Token]:
    """Return the tokens of a prompt; the first has no log probability."""
    detokenizer = tokenizer.detokenizer([])
    tokens = [Token(token_id, detokenizer.step(token_id), CERTAIN, rank=1) for token_id in prompt_ids]
    tokens[0].log_prob = tokens[0].rank = None
    return tokens
