"""A limit on the tokens of the reasoning, kept in vLLM's engine: vLLM's own knows one pair of markers for a model."""

from collections.abc import Callable
from typing import Any

import torch

from lmi_core.errors import InvalidParameter
from lmi_core.generation.extended_parameters import ExtendedParameters
from lmi_core.generation.reasoning_budget import ReasoningBudget, ReasoningCountdown
from lmi_plugins.vllm_engine.library import AdapterLogitsProcessor, SamplingParams

REASONING_BUDGET = "reasoning_budget"


def reasoning_budget_arguments(parameters: ExtendedParameters) -> dict[str, Any] | None:
    """Return what the processor is told of a request."""
    budget = parameters.reasoning_budget
    return None if budget is None else budget.model_dump()


def check_reasoning_budget(parameters: ExtendedParameters, vocabulary: int) -> None:
    """Raise InvalidParameter for ids that the engine could not force, which would end it."""
    budget = parameters.reasoning_budget
    for marker in () if budget is None else (*budget.starts, *budget.ends):
        for token_id in marker:
            if token_id >= vocabulary:
                raise InvalidParameter(
                    f"`{REASONING_BUDGET}` must contain token ids from 0 to {vocabulary - 1}. Given: {token_id}"
                )


class EndOfReasoningProcessor(AdapterLogitsProcessor):
    """A logits processor that leaves only the end marker's next token where the reasoning has reached its limit."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Callable[..., torch.Tensor] | None:
        asked = (params.extra_args or {}).get(REASONING_BUDGET)
        return None if asked is None else RequestLimit(ReasoningCountdown(ReasoningBudget(**asked)))


class RequestLimit:
    """One request's limit."""

    def __init__(self, countdown: ReasoningCountdown) -> None:
        self._countdown = countdown

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        """Return the logits of the tokens that may come next. logits: [vocabulary]."""
        forced = self._countdown.forced(output_ids)
        if forced is None:
            return logits
        left = torch.full_like(logits, -torch.inf)
        left[forced] = 0.0
        return left
