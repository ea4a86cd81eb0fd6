"""The output of a request so far."""

import msgspec

from lmi_core.generation.output import GenerationStep, Token


class Given(msgspec.Struct, array_like=True):
    """The output of one sequence so far, from which another engine continues."""

    token_ids: list[int] = []
    begun: bool = False  # its first step, which describes the prompt, has been delivered
    finished: bool = False


class PartialOutput:
    """The steps of a request, of which only the tokens are kept; they are examined when its engine has died."""

    def __init__(self, num_sequences: int) -> None:
        self._tokens: list[list[list[Token]]] = [[] for _ in range(num_sequences)]
        self._finished = [False] * num_sequences
        self._count = 0

    def add(self, step: GenerationStep) -> int:
        """Add a step, and return the total number of tokens."""
        self._tokens[step.sequence_index].append(step.tokens)
        if step.finish_reason is not None:
            self._finished[step.sequence_index] = True
        self._count += len(step.tokens)
        return self._count

    @property
    def unfinished(self) -> int:
        """The number of unfinished sequences."""
        return self._finished.count(False)

    @property
    def given(self) -> list[Given]:
        """The output of each sequence; empty if none has started."""
        if not any(self._tokens):
            return []
        return [
            Given([token.id for tokens in steps for token in tokens], bool(steps), finished)
            for steps, finished in zip(self._tokens, self._finished, strict=True)
        ]
