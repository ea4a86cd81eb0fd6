"""Logits processors for features that vLLM's sampler lacks. A request selects them by `SamplingParams.extra_args`."""

from collections.abc import Callable
from typing import Any

import torch

from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.generation.reasoning_budget import ReasoningBudget, ReasoningCountdown
from lmi_plugins.vllm_engine.library import AdapterLogitsProcessor, SamplingParams
from lmi_plugins.vllm_engine.outputs.named_log_probs import NamedLogProbs
from lmi_plugins.vllm_engine.requests.bad_texts import BAD_SEQUENCES, BadTextsProcessor, bad_text_arguments
from lmi_plugins.vllm_engine.requests.vllm_fields import fields_of

TYPICAL_P = "typical_p"
NO_REPEAT_NGRAM_SIZE = "no_repeat_ngram_size"
REASONING_BUDGET = "reasoning_budget"
ARGUMENT_NAMES = frozenset({TYPICAL_P, NO_REPEAT_NGRAM_SIZE, BAD_SEQUENCES, REASONING_BUDGET})
TRANSFERS = ("kv_transfer_params", "ec_transfer_params")
# vLLM's router puts the prompt's token ids there, so that the second engine need not tokenize.
PROMPT_OF_TRANSFER = "prompt_token_ids"


def extra_arguments(parameters: ExtendedParameters) -> dict[str, Any] | None:
    """Return the processors' arguments for a request; None if they have nothing to do."""
    given: dict[str, Any] = {}
    if parameters.typical_p < 1 and parameters.do_sample:
        given[TYPICAL_P] = parameters.typical_p
    if parameters.no_repeat_ngram_size:
        given[NO_REPEAT_NGRAM_SIZE] = parameters.no_repeat_ngram_size
    if (bad_texts := bad_text_arguments(parameters)) is not None:
        given[BAD_SEQUENCES] = bad_texts
    if parameters.reasoning_budget is not None:
        given[REASONING_BUDGET] = parameters.reasoning_budget.model_dump()
    return given or None


def all_extra_arguments(parameters: ExtendedParameters) -> dict[str, Any] | None:
    """Return `SamplingParams.extra_args`: the arguments of our logits processors, and the request's own."""
    passed = fields_of(parameters)
    given = {**(passed.vllm_xargs or {}), **(extra_arguments(parameters) or {})}
    for name in TRANSFERS:
        if asked := getattr(passed, name):
            given[name] = {key: value for key, value in asked.items() if key != PROMPT_OF_TRANSFER}
    return given or None


class TypicalProcessor(AdapterLogitsProcessor):
    """Locally typical sampling (Meister et al. 2022), which keeps tokens with about the expected surprise."""

    def is_argmax_invariant(self) -> bool:
        return True  # not strictly true, but greedy decoding must not change, and this comes after the temperature

    def new_req_logits_processor(self, params: SamplingParams) -> Callable[..., torch.Tensor] | None:
        mass = (params.extra_args or {}).get(TYPICAL_P)
        return None if mass is None else lambda _, logits: keep_typical(logits, mass)


class NoRepeatNgramProcessor(AdapterLogitsProcessor):
    """A processor that lets no n-gram occur twice, including those in the prompt."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Callable[..., torch.Tensor] | None:
        size = (params.extra_args or {}).get(NO_REPEAT_NGRAM_SIZE)
        if size is None:
            return None
        return lambda prompt_ids, output_ids, logits: exclude_repeats(logits, [*prompt_ids, *output_ids], size)


class EndOfReasoningProcessor(AdapterLogitsProcessor):
    """A logits processor that leaves only the end marker's next token if the reasoning has reached its limit."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Callable[..., torch.Tensor] | None:
        asked = (params.extra_args or {}).get(REASONING_BUDGET)
        if asked is None:
            return None
        countdown = ReasoningCountdown(ReasoningBudget(**asked))
        return lambda output_ids, logits: keep_forced(logits, countdown.forced_token(output_ids))


# By name, because vLLM's processes import them. The last one sees the result of the others.
LOGITS_PROCESSORS = tuple(
    f"{each.__module__}:{each.__qualname__}"
    for each in (TypicalProcessor, NoRepeatNgramProcessor, BadTextsProcessor, NamedLogProbs, EndOfReasoningProcessor)
)


def keep_typical(logits: torch.Tensor, mass: float) -> torch.Tensor:
    """Mask the tokens outside the typical `mass`, as transformers' TypicalLogitsWarper does. logits: [vocabulary]."""
    log_probs = logits.log_softmax(-1)
    probs = log_probs.exp()
    entropy = -(log_probs * probs).nansum()
    order = (-log_probs - entropy).abs().argsort()
    before = probs[order].cumsum(-1) - probs[order]
    return logits.masked_fill(torch.zeros_like(logits, dtype=torch.bool).scatter(0, order, before >= mass), -torch.inf)


def exclude_repeats(logits: torch.Tensor, ids: list[int], size: int) -> torch.Tensor:
    """Mask the tokens that would repeat a run of `size` among `ids`, all tokens so far. logits: [vocabulary]."""
    start = ids[len(ids) - size + 1 :]
    repeats = {ids[i + size - 1] for i in range(len(ids) - size + 1) if ids[i : i + size - 1] == start}
    if not repeats:
        return logits
    return logits.index_fill(0, torch.tensor(sorted(repeats), device=logits.device), -torch.inf)


def keep_forced(logits: torch.Tensor, token_id: int | None) -> torch.Tensor:
    """Mask all tokens but the one that must come next, if one must. logits: [vocabulary]."""
    if token_id is None:
        return logits
    left = torch.full_like(logits, -torch.inf)
    left[token_id] = 0.0
    return left
