"""Engine arguments of earlier versions of vLLM: their replacements, or why there are none. Imports no vLLM."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

FAST_LOADER = "sagemaker_fast_model_loader"

Replacement = Callable[[str], dict[str, Any]]


def _value(text: str) -> Any:
    with suppress(ValueError):
        return json.loads(text)
    return text


def _is_true(text: str) -> bool:
    return text.lower() == "true"


def _member(argument: str, name: str) -> Replacement:
    """Give the value as a member of an argument that is a JSON object."""
    return lambda text: {argument: {name: _value(text)}}


def _renamed(argument: str) -> Replacement:
    return lambda text: {argument: text}


def _if_true(**arguments: Any) -> Replacement:
    return lambda text: dict(arguments) if _is_true(text) else {}


REPLACEMENTS: Mapping[str, Replacement] = {
    "cuda_graph_sizes": _renamed("cudagraph_capture_sizes"),
    "disable_log_requests": lambda text: {"enable_log_requests": "false" if _is_true(text) else "true"},
    "disable_mm_preprocessor_cache": _if_true(mm_processor_cache_gb="0"),
    "enable_multimodal_encoder_data_parallel": _if_true(mm_encoder_tp_mode="data"),
    "guided_decoding_backend": _member("structured_outputs_config", "backend"),
    "guided_decoding_disable_additional_properties": _member(
        "structured_outputs_config", "disable_additional_properties"
    ),
    "guided_decoding_disable_any_whitespace": _member("structured_outputs_config", "disable_any_whitespace"),
    "kv_cache_memory": _renamed("kv_cache_memory_bytes"),
    "max_seq_len_to_capture": _renamed("max_cudagraph_capture_size"),
    "ngram_prompt_lookup_max": _member("speculative_config", "prompt_lookup_max"),
    "ngram_prompt_lookup_min": _member("speculative_config", "prompt_lookup_min"),
    "override_pooler_config": _renamed("pooler_config"),
    "rope_scaling": _member("hf_overrides", "rope_scaling"),
    "rope_theta": _member("hf_overrides", "rope_theta"),
    "speculative_disable_by_batch_size": _member("speculative_config", "disable_by_batch_size"),
    "speculative_max_model_len": _member("speculative_config", "max_model_len"),
    "speculative_model_quantization": _member("speculative_config", "quantization"),
    "worker_use_ray": _if_true(distributed_executor_backend="ray"),
}

_SCHEDULED_OTHERWISE = "vLLM's current scheduler has no equivalent"
_ALWAYS_SO = "vLLM always does so now"
_TAKEN_OUT = "vLLM has removed the feature"

WITHOUT_REPLACEMENT: Mapping[str, str] = {
    "calculate_kv_scales": _TAKEN_OUT,
    "device": "vLLM detects the devices itself",
    "disable_async_output_proc": _SCHEDULED_OTHERWISE,
    "disable_logprobs_during_spec_decoding": _ALWAYS_SO,
    "enable_prompt_adapter": _TAKEN_OUT,
    "engine_use_ray": _TAKEN_OUT,
    "image_feature_size": _TAKEN_OUT,
    "image_input_shape": _TAKEN_OUT,
    "image_input_type": _TAKEN_OUT,
    "image_token_id": _TAKEN_OUT,
    "logits_processor_pattern": _TAKEN_OUT,
    "max_context_len_to_capture": _TAKEN_OUT,
    "max_log_len": "prompts are not logged",
    "max_long_partial_prefills": _SCHEDULED_OTHERWISE,
    "max_num_partial_prefills": _SCHEDULED_OTHERWISE,
    "max_paddings": _TAKEN_OUT,
    "max_prompt_adapter_token": _TAKEN_OUT,
    "max_prompt_adapters": _TAKEN_OUT,
    "multi_step_stream_outputs": _SCHEDULED_OTHERWISE,
    "num_lookahead_slots": _SCHEDULED_OTHERWISE,
    "num_scheduler_steps": _SCHEDULED_OTHERWISE,
    "preemption_mode": _SCHEDULED_OTHERWISE,
    "qlora_adapter_name_or_path": _TAKEN_OUT,
    "quantization_param_path": _TAKEN_OUT,
    "scheduler_delay_factor": _SCHEDULED_OTHERWISE,
    "spec_decoding_acceptance_method": _TAKEN_OUT,
    "swap_space": "vLLM recomputes preempted requests instead of swapping them",
    "tokenizer_pool_extra_config": _TAKEN_OUT,
    "tokenizer_pool_size": _TAKEN_OUT,
    "tokenizer_pool_type": _TAKEN_OUT,
    "typical_acceptance_sampler_posterior_alpha": _TAKEN_OUT,
    "typical_acceptance_sampler_posterior_threshold": _TAKEN_OUT,
    "use_v2_block_manager": _ALWAYS_SO,
}

FORMER_ARGUMENTS = frozenset(REPLACEMENTS.keys() | WITHOUT_REPLACEMENT.keys())


class Passed(NamedTuple):
    """Engine arguments as text, and warnings for their author."""

    arguments: dict[str, str]
    warnings: list[str]


def with_present_values(given: Mapping[str, str]) -> Passed:
    """Return the arguments with values in vLLM's present form: `image=4` becomes `{"image": 4}`."""
    arguments, warnings = dict(given), []
    limits = arguments.get("limit_mm_per_prompt", "")
    if re.fullmatch(r"\w+=\d+(\s*,\s*\w+=\d+)*", limits):
        pairs = (each.split("=") for each in limits.split(","))
        arguments["limit_mm_per_prompt"] = json.dumps({name.strip(): int(count) for name, count in pairs})
    if arguments.get("load_format") == FAST_LOADER:
        del arguments["load_format"]
        warnings.append(
            f"option.load_format={FAST_LOADER} has no effect: it is SageMaker's own loader, and the model's own "
            "files are loaded"
        )
    return Passed(arguments, warnings)


def with_replacements(given: Mapping[str, str], known: Collection[str]) -> Passed:
    """Return the arguments of the installed vLLM, with a warning for each replaced or removed one."""
    arguments: dict[str, Any] = {name: value for name, value in given.items() if name in known}
    warnings: list[str] = []
    for name in sorted(given.keys() & (FORMER_ARGUMENTS - set(known))):
        if name in WITHOUT_REPLACEMENT:
            warnings.append(f"option.{name}={given[name]} has no effect: {WITHOUT_REPLACEMENT[name]}")
            continue
        replacement = REPLACEMENTS[name](given[name])
        for argument, value in replacement.items():
            arguments[argument] = _merged(arguments.get(argument), value)
        told = ", ".join(f"{argument}={as_text(value)}" for argument, value in replacement.items()) or "nothing"
        warnings.append(f"option.{name}={given[name]} is a former name of vLLM's: it is read as {told}")
    return Passed({name: as_text(value) for name, value in arguments.items()}, warnings)


def _merged(given: Any, value: Any) -> Any:
    """Return the value under the present name, which overrides a former one; members of objects are merged."""
    if given is None:
        return value
    given = _value(given) if isinstance(given, str) else given
    return {**value, **given} if isinstance(given, dict) and isinstance(value, dict) else given


def as_text(value: object) -> str:
    """Return an engine argument as text; values that are not text become JSON."""
    return value if isinstance(value, str) else json.dumps(value)
