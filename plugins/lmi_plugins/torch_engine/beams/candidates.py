"""What a beam search weighs: continuations of its beams, and beams that are finished."""

from dataclasses import dataclass
from typing import NamedTuple

from lmi_core.generation.output import FinishReason
from lmi_plugins.torch_engine.sequences.top_logprobs import TopLogprobs


class Choice(NamedTuple):
    """One generated token of a beam."""

    token_id: int
    log_prob: float  # in the model's own distribution
    top_logprobs: TopLogprobs | None
    rank: int | None  # if asked for


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished beam."""

    choices: list[Choice]
    reason: FinishReason
    logits: bytes | None  # of each choice, where they are asked for


@dataclass(frozen=True, slots=True)
class Candidate:
    """A beam with one more token."""

    score: float  # the sum of the log probs, after penalties
    parent: int  # index of the beam
    choice: Choice
    reason: FinishReason | None  # why the beam ends with this token, if it does
