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
    """Return the replacement of an option by a member of an argument that is a JSON object."""
    return lambda text: {argument: {name: _value(text)}}


def _rename(argument: str) -> Replacement:
    return lambda text: {argument: text}


def _if_true(**arguments: Any) -> Replacement:
    return lambda text: dict(arguments) if _is_true(text) else {}


REPLACEMENTS: Mapping[str, Replacement] = {
    "cuda_graph_sizes": _rename("cudagraph_capture_sizes"),
    "disable_log_requests": lambda text: {"enable_log_requests": "false" if _is_true(text) else "true"},
    "disable_mm_preprocessor_cache": _if_true(mm_processor_cache_gb="0"),
    "enable_multimodal_encoder_data_parallel": _if_true(mm_encoder_tp_mode="data"),
    "guided_decoding_backend": _member("structured_outputs_config", "backend"),
    "guided_decoding_disable_additional_properties": _member(
        "structured_outputs_config", "disable_additional_properties"
    ),
    "guided_decoding_disable_any_whitespace": _member("structured_outputs_config", "disable_any_whitespace"),
    "kv_cache_memory": _rename("kv_cache_memory_bytes"),
    "max_seq_len_to_capture": _rename("max_cudagraph_capture_size"),
    "ngram_prompt_lookup_max": _member("speculative_config", "prompt_lookup_max"),
    "ngram_prompt_lookup_min": _member("speculative_config", "prompt_lookup_min"),
    "override_pooler_config": _rename("pooler_config"),
    "rope_scaling": _member("hf_overrides", "rope_scaling"),
    "rope_theta": _member("hf_overrides", "rope_theta"),
    "speculative_disable_by_batch_size": _member("speculative_config", "disable_by_batch_size"),
    "speculative_max_model_len": _member("speculative_config", "max_model_len"),
    "speculative_model_quantization": _member("speculative_config", "quantization"),
    "worker_use_ray": _if_true(distributed_executor_backend="ray"),
}

# The former arguments without a replacement, by the reason.
_REMOVED: Mapping[str, str] = {
    "vLLM has removed the feature": """
        calculate_kv_scales enable_prompt_adapter engine_use_ray image_feature_size image_input_shape image_input_type
        image_token_id logits_processor_pattern max_context_len_to_capture max_paddings max_prompt_adapter_token
        max_prompt_adapters qlora_adapter_name_or_path quantization_param_path spec_decoding_acceptance_method
        tokenizer_pool_extra_config tokenizer_pool_size tokenizer_pool_type
        typical_acceptance_sampler_posterior_alpha typical_acceptance_sampler_posterior_threshold
    """,
    "vLLM's current scheduler has no equivalent": """
        disable_async_output_proc max_long_partial_prefills max_num_partial_prefills multi_step_stream_outputs
        num_lookahead_slots num_scheduler_steps preemption_mode scheduler_delay_factor
    """,
    "vLLM always does so now": "disable_logprobs_during_spec_decoding use_v2_block_manager",
    "vLLM detects the devices itself": "device",
    "prompts are not logged": "max_log_len",
    "vLLM recomputes preempted requests and does not swap": "swap_space",
}
WITHOUT_REPLACEMENT = {name: reason for reason, names in _REMOVED.items() for name in names.split()}

FORMER_ARGUMENTS = frozenset(REPLACEMENTS.keys() | WITHOUT_REPLACEMENT.keys())


class Arguments(NamedTuple):
    """Engine arguments as text, and warnings for their author."""

    arguments: dict[str, str]
    warnings: list[str]


def with_present_values(given: Mapping[str, str]) -> Arguments:
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
    return Arguments(arguments, warnings)


def with_replacements(given: Mapping[str, str], known: Collection[str]) -> Arguments:
    """Return the arguments of the installed vLLM, with a warning for each replaced or removed one."""
    arguments: dict[str, Any] = {name: value for name, value in given.items() if name in known}
    warnings: list[str] = []
    for name in sorted(given.keys() & (FORMER_ARGUMENTS - set(known))):
        if name in WITHOUT_REPLACEMENT:
            warnings.append(f"option.{name}={given[name]} has no effect: {WITHOUT_REPLACEMENT[name]}")
            continue
        replacement = REPLACEMENTS[name](given[name])
        for argument, value in replacement.items():
            arguments[argument] = _merge(arguments.get(argument), value)
        present = ", ".join(f"{argument}={as_text(value)}" for argument, value in replacement.items()) or "nothing"
        warnings.append(f"option.{name}={given[name]} is a former name of vLLM's: it is read as {present}")
    return Arguments({name: as_text(value) for name, value in arguments.items()}, warnings)


def _merge(given: Any, value: Any) -> Any:
    """Return the value under the present name, which overrides a former one; members of objects are merged."""
    if given is None:
        return value
    given = _value(given) if isinstance(given, str) else given
    return {**value, **given} if isinstance(given, dict) and isinstance(value, dict) else given


def as_text(value: object) -> str:
    """Return an engine argument as text; values that are not text become JSON."""
    return value if isinstance(value, str) else json.dumps(value)
