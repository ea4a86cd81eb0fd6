"""How many prompt tokens a step may compute."""

from collections.abc import Sequence as Items

from lmi_plugins.torch_engine.sequence import Chunk

LEAST = 16  # tokens
FIRST = 64  # tokens, while nothing is known
STRETCH = 1.0  # a step with prompt tokens may take so much longer, as a share of one without
LEARNING_RATE = 0.2


class PrefillBudget:
    """All at once where nothing decodes; else no more than the running streams hardly notice, as measured here."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._decode_seconds: float | None = None  # of a step without prompt tokens
        self._token_seconds: float | None = None  # what a prompt token adds

    def tokens(self, decoding: int, prefilling: int) -> int:
        """For so many streams that would wait, and so many prompts that do: where they are more, they get more."""
        if not decoding:
            return self._most
        share = max(1.0, prefilling / decoding)
        if self._decode_seconds is None or self._token_seconds is None:
            return min(self._most, int(FIRST * share))
        unnoticed = int(STRETCH * share * self._decode_seconds / max(self._token_seconds, 1e-9))
        return min(self._most, max(LEAST, unnoticed))

    def record(self, chunks: Items[Chunk], seconds: float) -> None:
        """How long a step with these chunks took."""
        lengths = [len(chunk) - (0 if chunk.draft is None else len(chunk.draft)) for chunk in chunks]
        prefilled = sum(length for length in lengths if length > 1)
        if not prefilled:
            self._decode_seconds = _towards(self._decode_seconds, seconds)
        elif prefilled >= LEAST:
            decoding = (self._decode_seconds or 0) if 1 in lengths else 0
            self._token_seconds = _towards(self._token_seconds, max(seconds - decoding, 0) / prefilled)


def _towards(mean: float | None, value: float) -> float:
    return value if mean is None else mean + LEARNING_RATE * (value - mean)
