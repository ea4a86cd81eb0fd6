"""The state of logits processors for one sequence."""

from copy import deepcopy
from dataclasses import dataclass, replace

import torch

from lmi_core.generation.reasoning_budget import ReasoningCountdown
from lmi_core.texts.bad_texts.text_ban import TextBan
from lmi_plugins.torch_engine.guides.grammar_matcher import Matcher


class TokenCounts:
    """The number of occurrences of each token from an index of the sequence on, updated on demand."""

    def __init__(self, start: int, vocabulary: int, device: torch.device) -> None:
        self._start = self._length = start
        self._counts = torch.zeros(vocabulary, device=device)

    def of(self, token_ids: list[int]) -> torch.Tensor:
        """Return the counts in these tokens, [vocabulary], float32."""
        if len(token_ids) < self._length:  # generated tokens were rolled back
            self._counts.zero_()
            self._length = self._start
        # Larger ids stand for a soft prompt.
        new = [token_id for token_id in token_ids[self._length :] if token_id < len(self._counts)]
        if new:
            index = torch.tensor(new, device=self._counts.device)
            self._counts.index_add_(0, index, torch.ones(len(new), device=index.device))
        self._length = len(token_ids)
        return self._counts


class Ngrams:
    """The tokens that followed each run of `size - 1` tokens, updated on demand."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._length = 0
        self._followers: dict[tuple[int, ...], set[int]] = {}

    def completions(self, token_ids: list[int]) -> set[int]:
        """Return the tokens that would complete an n-gram that has occurred before."""
        if len(token_ids) < self._length:  # generated tokens were rolled back
            self._followers.clear()
            self._length = 0
        for index in range(max(self._length, self._size - 1), len(token_ids)):
            before = tuple(token_ids[index - self._size + 1 : index])
            self._followers.setdefault(before, set()).add(token_ids[index])
        self._length = len(token_ids)
        return self._followers.get(tuple(token_ids[len(token_ids) - self._size + 1 :]), set())


@dataclass(slots=True)
class ProcessorState:
    """The parts of all processors, each created on demand."""

    bias: torch.Tensor | None = None  # [vocabulary]
    token_counts: TokenCounts | None = None  # of prompt and generated tokens
    generated_counts: TokenCounts | None = None
    ngrams: Ngrams | None = None
    matcher: Matcher | None = None
    text_ban: TextBan | None = None  # requested texts, shared by all sequences of the request
    allowed_ids: torch.Tensor | None = None
    reasoning: ReasoningCountdown | None = None

    def fork(self) -> "ProcessorState":
        """Return a copy of the state for a sequence that continues from the same tokens."""
        return replace(
            self,
            token_counts=deepcopy(self.token_counts),
            generated_counts=deepcopy(self.generated_counts),
            ngrams=deepcopy(self.ngrams),
            reasoning=deepcopy(self.reasoning),
            matcher=None if self.matcher is None else self.matcher.fork(),
        )
