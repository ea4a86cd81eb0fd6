"""Translation of LMI's generation parameters to the torch engine's."""

from typing import Any

from lmi_core.generation.parameters import ExtendedParameters
from lmi_plugins.torch_engine.guides.grammars import guide_of
from lmi_plugins.torch_engine.messages.requests import ReasoningLimit, Repetition, SamplingParameters

# Parameters that have LMI's names in the engine, but another form.
CONVERTED = frozenset({"temperature", "stop_sequences", "logit_bias", "bad_sequences"})
SAME = tuple(
    name
    for name in SamplingParameters.__struct_fields__
    if name in ExtendedParameters.model_fields and name not in CONVERTED
)


def sampling_parameters(
    parameters: ExtendedParameters, markers: tuple[str, ...] = (), *, ranks: bool = False
) -> SamplingParameters:
    """Return the engine's parameters; without `do_sample`, decoding is greedy, regardless of sampling parameters."""
    same: dict[str, Any] = {name: getattr(parameters, name) for name in SAME}
    return SamplingParameters(
        **same,
        temperature=parameters.temperature if parameters.do_sample else 0.0,
        stop_sequences=parameters.stop_sequences or [],
        prompt_log_probs=parameters.wants_prefill,
        logit_bias={int(token_id): bias for token_id, bias in (parameters.logit_bias or {}).items()},
        bad_texts=parameters.bad_sequences or [],
        ignore_end=parameters.ignore_eos_token,
        stop_token_sequences=[[token_id] for token_id in parameters.stop_token_ids or ()],
        include_stop=parameters.include_stop_str_in_output,
        markers=markers,
        num_top_tokens=parameters.num_top_tokens,
        num_prompt_top_tokens=parameters.num_prompt_top_tokens,
        num_samples=parameters.num_sequences if parameters.num_beams == 1 else 1,
        guide=guide_of(parameters),
        allowed_ids=parameters.allowed_token_ids,
        reasoning_limit=_reasoning_limit(parameters),
        top_ids=parameters.logprob_token_ids or [],
        repetition=_repetition(parameters),
        ranks=ranks,
    )


def _reasoning_limit(parameters: ExtendedParameters) -> ReasoningLimit | None:
    budget = parameters.reasoning_budget
    return None if budget is None else ReasoningLimit(budget.tokens, budget.starts, budget.ends, budget.inside)


def _repetition(parameters: ExtendedParameters) -> Repetition | None:
    asked = parameters.repetition_detection
    if asked is None or not asked.max_pattern_size:
        return None
    return Repetition(asked.min_pattern_size, asked.max_pattern_size, asked.min_count)
