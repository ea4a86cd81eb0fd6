"""How often vectors are made beside running streams."""


class Pace:
    """The turns of vectors among steps of generation: they slow streams no more than other prompts do.

    Each step of generation allows for as many tokens as a prompt in it might have; a step of vectors uses up what it
    computes, which may be more than was left, and then waits until that is allowed for too.
    """

    def __init__(self) -> None:
        self._allowed = 1

    def generated(self, prefill_tokens: int) -> None:
        """Note a step of generation, which could have had that many prompt tokens."""
        self._allowed = min(self._allowed + prefill_tokens, prefill_tokens)

    def embedded(self, num_tokens: int) -> None:
        """Note a step of vectors."""
        self._allowed -= num_tokens

    def reset(self) -> None:
        """Forget the past: nothing generates."""
        self._allowed = 1

    @property
    def is_due(self) -> bool:
        """Whether it is the turn of vectors."""
        return self._allowed > 0
