"""Translation of LMI's generation parameters to the torch engine's."""

from lmi_core.engines.extended_parameters import ExtendedParameters
from lmi_core.payloads.written_json import text_of
from lmi_plugins.torch_engine.worker.messages import Guide, ReasoningLimit, Repetition, SamplingParameters


def sampling_parameters(
    parameters: ExtendedParameters, markers: tuple[str, ...] = (), *, ranks: bool = False
) -> SamplingParameters:
    """Return the engine's parameters; without `do_sample`, decoding is greedy whatever the sampling parameters."""
    return SamplingParameters(
        temperature=parameters.temperature if parameters.do_sample else 0.0,
        top_k=parameters.top_k,
        top_p=parameters.top_p,
        repetition_penalty=parameters.repetition_penalty,
        seed=parameters.seed,
        max_new_tokens=parameters.max_new_tokens,
        stop_sequences=parameters.stop_sequences or [],
        prompt_log_probs=parameters.wants_prefill,
        min_p=parameters.min_p,
        typical_p=parameters.typical_p,
        presence_penalty=parameters.presence_penalty,
        frequency_penalty=parameters.frequency_penalty,
        no_repeat_ngram_size=parameters.no_repeat_ngram_size,
        logit_bias={int(token_id): bias for token_id, bias in (parameters.logit_bias or {}).items()},
        bad_texts=parameters.bad_sequences or [],
        min_length=parameters.min_length,
        ignore_end=parameters.ignore_eos_token,
        stop_token_sequences=[[token_id] for token_id in parameters.stop_token_ids or ()],
        include_stop=parameters.include_stop_str_in_output,
        skip_special_tokens=parameters.skip_special_tokens,
        spaces_between_special_tokens=parameters.spaces_between_special_tokens,
        markers=markers,
        num_top_tokens=parameters.num_top_tokens,
        num_prompt_top_tokens=parameters.num_prompt_top_tokens,
        num_samples=parameters.num_sequences if parameters.num_beams == 1 else 1,
        guide=_guide(parameters),
        num_beams=parameters.num_beams,
        length_penalty=parameters.length_penalty,
        early_stopping=parameters.early_stopping,
        allowed_ids=parameters.allowed_token_ids,
        reasoning_limit=_reasoning_limit(parameters),
        top_ids=parameters.logprob_token_ids or [],
        repetition=_repetition(parameters),
        cache_salt=parameters.cache_salt,
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


def _guide(parameters: ExtendedParameters) -> Guide | None:
    reasoning = parameters.guided_reasoning
    if parameters.guided_choice is not None:
        return Guide("choice", list(parameters.guided_choice), reasoning)
    if parameters.guided_json is not None:
        return Guide("json", text_of(parameters.guided_json), reasoning)
    if parameters.guided_regex is not None:
        return Guide("regex", parameters.guided_regex, reasoning)
    if parameters.guided_structural_tag is not None:
        return Guide("structural_tag", text_of(parameters.guided_structural_tag), reasoning)
    return None if parameters.guided_grammar is None else Guide("grammar", parameters.guided_grammar, reasoning)
