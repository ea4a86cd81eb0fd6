"""The maximum number of prompt tokens in a step."""

from collections.abc import Sequence as Items

from lmi_plugins.torch_engine.sequences.step_batch import Chunk

MIN_TOKENS = 16
INITIAL_TOKENS = 64  # used until measurements exist
STRETCH = 1.0  # how much longer a step with prompt tokens may take, as a fraction of a step without
STEP_SECONDS = 0.15  # a step may always take so long for a prompt: its streams still are as fast as people read
LEARNING_RATE = 0.2
BLOCK = 64  # rows that matrix products on CPUs compute together: another row may take as long as another block


class PrefillBudget:
    """A limit learned from the duration of steps, so that running streams continue beside prompts.

    The limit of the options applies if nothing decodes, and always on a GPU, where hundreds of prompt tokens take
    hardly longer than one.
    """

    def __init__(self, max_tokens: int, on_gpu: bool = False) -> None:
        self._max_tokens, self._on_gpu = max_tokens, on_gpu
        self._decode_seconds: float | None = None  # duration of a step without prompt tokens
        self._token_seconds: float | None = None  # additional time per prompt token

    def tokens(self, decoding: int, prefilling: int) -> int:
        """Return the maximum for a step with these numbers of decoding streams and prefilling prompts.

        More prompts get more. Without any, it is the number of tokens that hardly delay the streams.
        """
        if not decoding or self._on_gpu:
            return self._max_tokens
        share = max(1.0, prefilling / decoding)
        budget = INITIAL_TOKENS * share
        if self._decode_seconds is not None and self._token_seconds is not None:
            seconds = STRETCH * self._decode_seconds
            if prefilling:
                seconds = share * max(seconds, STEP_SECONDS - self._decode_seconds)
            budget = max(MIN_TOKENS, seconds / max(self._token_seconds, 1e-9))
        return _whole_blocks(min(self._max_tokens, int(budget)), decoding)

    def record(self, chunks: Items[Chunk], seconds: float) -> None:
        """Learn from a step with these chunks, which took `seconds`."""
        prefilled, decodes = 0, False
        for chunk in chunks:
            length = len(chunk) - chunk.num_draft_tokens
            decodes |= length == 1
            prefilled += length if length > 1 else 0
        if not prefilled:
            self._decode_seconds = _towards(self._decode_seconds, seconds)
        elif prefilled >= MIN_TOKENS:
            decoding = (self._decode_seconds or 0) if decodes else 0
            self._token_seconds = _towards(self._token_seconds, max(seconds - decoding, 0) / prefilled)


def _whole_blocks(budget: int, decoding: int) -> int:
    """Return a smaller budget without the rows of a step that would begin another block."""
    rows = decoding + budget
    return budget if rows < BLOCK else max(budget - rows % BLOCK, min(budget, MIN_TOKENS))


def _towards(mean: float | None, value: float) -> float:
    """Return the running mean after one more value."""
    return value if mean is None else mean + LEARNING_RATE * (value - mean)
