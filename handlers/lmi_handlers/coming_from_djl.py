"""What becomes of DJLServing's keys, as a page made of the declarations."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from lmi_core.backend import Backend
from lmi_core.keys_without_effect import KEYS_WITHOUT_EFFECT
from lmi_core.plugins import Plugins
from lmi_core.properties import OPTION_PREFIX, DeclaredKey, HandlerProperties, ServerProperties, declared

# As its pages of 0.27 and newer, its suite and its containers name them.
_NAMES = """
engine job_queue_size batch_size max_dynamic_batch_size max_batch_delay max_idle_time load_on_devices minWorkers
maxWorkers gpu.minWorkers gpu.maxWorkers cpu.minWorkers cpu.maxWorkers log_request_metric metrics_aggregation
retry_threshold required_memory_mb gpu.required_memory_mb reserved_memory_mb gpu.reserved_memory_mb translatorFactory
application option.model_id option.revision option.trust_remote_code option.rolling_batch
option.max_rolling_batch_size option.dtype option.tensor_parallel_degree option.pipeline_parallel_degree
option.entryPoint option.handler option.parallel_loading option.model_loading_timeout option.predict_timeout
option.output_formatter option.tgi_compat option.enable_streaming option.async_mode option.mpi_mode option.task
option.device_map option.low_cpu_mem_usage option.load_in_8bit option.load_in_4bit option.quantize
option.max_rolling_batch_prefill_tokens option.max_model_len option.load_format option.enforce_eager
option.gpu_memory_utilization option.enable_chunked_prefill option.enable_prefix_caching option.cpu_offload_gb_per_gpu
option.disable_sliding_window option.tokenizer_mode option.limit_mm_per_prompt option.speculative_draft_model
option.draft_model_tp_size option.speculative_length option.record_acceptance_rate option.speculative_model
option.num_speculative_tokens option.speculative_config option.use_v2_block_manager option.enable_lora option.adapters
option.max_loras option.max_lora_rank option.lora_extra_vocab_size option.max_cpu_loras option.fully_sharded_loras
option.lora_dtype option.long_lora_scaling_factors option.tool_call_parser option.reasoning_parser
option.chat_template option.lmcache_config_file option.kv_transfer_config option.max_output_size option.enable_venv
option.pythonExecutable option.modelName option.max_new_tokens option.add_output_formatter option.waiting_steps
option.max_input_len option.max_output_len option.max_num_tokens option.max_num_sequences option.max_beam_width
option.max_draft_len option.kv_cache_free_gpu_mem_fraction option.enable_kv_cache_reuse option.enable_trt_overlap
option.use_custom_all_reduce option.tokens_per_block option.batch_scheduler_policy option.multi_block_mode
option.use_fused_mlp option.rotary_base option.rotary_dim option.rotary_scaling_type option.rotary_scaling_factor
option.load_by_shard option.baichuan_model_version option.chatglm_model_version option.gpt_model_version
option.smoothquant_alpha option.smoothquant_per_token option.smoothquant_per_channel option.multi_query_mode
option.q_format option.calib_size option.calib_batch_size option.awq_format option.awq_calib_size
option.awq_block_size option.logits_dtype option.use_fp8_context_fmha option.fp8_scheme option.fp8_activation_scheme
option.n_positions option.unroll option.neuron_optimize_level option.context_length_estimate option.load_split_model
option.compiled_graph_path option.draft_model_compiled_path option.group_query_attention
option.enable_mixed_precision_accumulation option.model_loader option.save_mp_checkpoint_path
"""
DJL_KEYS = _NAMES.split()

_HEADING = """\
# Coming from DJLServing

`lmi serve DIR` serves a model directory of DJLServing's or of an LMI container's as it is. This page says what becomes
of each name that its documents, its test suite and its containers have. `lmi check DIR` says it of one directory: what
is in force, and a warning for each key that means nothing here, or that nobody knows. With `--strict` such a warning is
an error.
"""


class Reader(NamedTuple):
    """A declaration of a key, and which of the backends has it; no name where all have."""

    key: DeclaredKey
    backend: str | None


def document(plugins: Plugins) -> str:
    """Return docs/coming_from_djl.md."""
    return "\n".join([_HEADING, *_keys(plugins)])


def _keys(plugins: Plugins) -> Iterator[str]:
    readers = _readers(plugins)
    yield "## Keys of `serving.properties`\n"
    yield "[options.md](options.md) has types and defaults. Where backends differ, each is named.\n"
    yield "| key | what becomes of it |\n|---|---|"
    for key in DJL_KEYS:
        yield _row(f"`{key}`", what_becomes_of(key, readers))
    yield ""


def what_becomes_of(key: str, readers: Mapping[str, list[Reader]]) -> str:
    """Return a sentence or two; raises KeyError for a key that nobody reads and that has no reason."""
    found = readers.get(key, [])
    if not found:
        return f"No effect: {KEYS_WITHOUT_EFFECT[key]}."
    by_text: dict[str, list[str]] = {}
    for reader in found:
        by_text.setdefault(_text(reader.key, key), []).append(reader.backend or "")
    return " ".join(_of_backends(text, names) for text, names in by_text.items())


def _text(declared_key: DeclaredKey, key: str) -> str:
    if declared_key.no_effect is not None:
        return f"No effect: {declared_key.no_effect}."
    return declared_key.help if key == declared_key.key else f"Read as `{declared_key.key}`. {declared_key.help}"


def _of_backends(text: str, names: Iterable[str]) -> str:
    named = ", ".join(sorted(name for name in names if name))
    return f"{named}: {text}" if named else text


def _readers(plugins: Plugins) -> dict[str, list[Reader]]:
    """Every declaration of each key; one that all backends share counts once, and so does one of the server's."""
    readers: dict[str, list[Reader]] = {}
    for properties_type in (ServerProperties, HandlerProperties):
        for key in declared(properties_type):
            for name in (key.key, *key.aliases):
                readers.setdefault(name, []).append(Reader(key, None))
    backends = list(plugins.backends)
    for backend in backends:
        for name, reader in _of_backend(backend):
            readers.setdefault(name, []).append(reader)
    return {name: _shared(found, len(backends)) for name, found in readers.items()}


def _of_backend(backend: type[Backend[Any]]) -> Iterator[tuple[str, Reader]]:
    declared_keys = declared(backend.properties_type)
    for key in declared_keys:
        for name in (key.key, *key.aliases):
            yield name, Reader(key, backend.name)
    spoken_for = {name for key in declared_keys for name in (key.key, *key.aliases)}
    for name in {OPTION_PREFIX + argument for argument in backend.known_engine_arguments()} - spoken_for:
        yield name, Reader(_engine_argument(name), backend.name)


def _engine_argument(key: str) -> DeclaredKey:
    help_text = "Passed to vLLM as its engine argument, or by what replaced it ([vllm.md](vllm.md))."
    return DeclaredKey("", key, (), (), "", "", help_text)


def _shared(found: list[Reader], count: int) -> list[Reader]:
    texts = {reader.key.help for reader in found}
    return [Reader(found[0].key, None)] if len(found) == count and len(texts) == 1 else found


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
