"""What logits processors remember of one sequence."""

from copy import deepcopy
from dataclasses import dataclass, replace

import torch

from lmi_core.generation.reasoning_budget import ReasoningCountdown
from lmi_core.texts.bad_texts.text_ban import TextBan
from lmi_plugins.torch_engine.guides.grammar_matcher import Matcher
from lmi_plugins.torch_engine.sequences.token_history import Ngrams, TokenCounts


@dataclass(slots=True)
class ProcessorState:
    """One part for each processor, which makes it when it first needs it."""

    bias: torch.Tensor | None = None  # [vocabulary]
    token_counts: TokenCounts | None = None  # of the prompt's and the generated tokens
    generated_counts: TokenCounts | None = None
    ngrams: Ngrams | None = None
    matcher: Matcher | None = None
    text_ban: TextBan | None = None  # what its request asks for; the same for all its sequences
    allowed_ids: torch.Tensor | None = None
    reasoning: ReasoningCountdown | None = None

    def fork(self) -> "ProcessorState":
        """Return the state of a sequence that goes on from the same tokens."""
        return replace(
            self,
            token_counts=deepcopy(self.token_counts),
            generated_counts=deepcopy(self.generated_counts),
            ngrams=deepcopy(self.ngrams),
            reasoning=deepcopy(self.reasoning),
            matcher=None if self.matcher is None else self.matcher.fork(),
        )
