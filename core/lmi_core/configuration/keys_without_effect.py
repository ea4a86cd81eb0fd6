"""Keys of DJLServing and its containers that have no effect here, each with the reason."""

from collections.abc import Mapping

from lmi_core.configuration.properties import OPTION_PREFIX

_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "it is for AWS Neuron's compiler; this server runs models on GPUs and CPUs": (
        "all_reduce_dtype",
        "amp",
        "attention_layout",
        "bf16_rms_norm",
        "cache_layout",
        "cast_logits_dtype",
        "collectives_layout",
        "compilation_worker_count",
        "compiled_graph_path",
        "context_length_estimate",
        "draft_model_compiled_path",
        "enable_mixed_precision_accumulation",
        "enable_saturate_infinity",
        "fuse_qkv",
        "fused_rmsnorm_qkv",
        "group_query_attention",
        "load_split_model",
        "model_loader",
        "n_positions",
        "neuron_cc_pipeline_factor",
        "neuron_optimize_level",
        "neuron_quant",
        "on_device_embedding",
        "on_device_generation",
        "partition_schema",
        "preloaded_model",
        "qkv_tiling",
        "rolling_batch_strategy",
        "sequence_parallel_norm",
        "sequence_parallel_norm_threshold",
        "shard_over_sequence",
        "unroll",
        "weight_tiling",
    ),
    "it is for DeepSpeed, which this server does not use": (
        "checkpoint",
        "deepspeed_config_path",
        "ds_config",
        "enable_cuda_graph",
        "max_tokens",
        "replace_method",
        "return_tuple",
        "training_mp_size",
        "triangular_masking",
    ),
    "it is for LMI's former scheduler: each request's parameters choose how it is decoded": (
        "decoding_strategy",
        "disable_flash_attn",
        "max_sparsity",
        "max_splits",
        "multi_gpu",
    ),
    "the key-value cache is always paged": ("paged_attention",),
    "the model directory is the one that is served; option.model_id names another folder with the weights": (
        "model_dir",
    ),
    "it is the output folder of DJLServing's partitioning; this server does not partition models": (
        "save_mp_checkpoint_path",
        "sharded_model_dir",
    ),
    "quantization with bitsandbytes while loading is not supported; a quantized model's own configuration is used": (
        "load_in_4bit",
        "load_in_8bit",
    ),
    "weights are always loaded directly to their device": ("low_cpu_mem_usage",),
    "the number of tokens is set per request (max_new_tokens); DJLServing ignores this key too": (
        "max_new_tokens",
        "max_tokens_default",
    ),
    "a formatter in model.py is found automatically": ("add_output_formatter",),
    "the model is loaded from option.model_id, whatever its files are called": (
        "modelName",
        "modeName",
        "model_name",
    ),
    "the model's code runs in the server's Python; option.enable_venv gives it a separate environment": (
        "pythonExecutable",
    ),
    "it is for DJLServing's engines for other kinds of models": (
        "cpuArenaAllocator",
        "customOpLibrary",
        "disablePerSessionThreads",
        "executionMode",
        "extraFiles",
        "interOpNumThreads",
        "intraOpNumThreads",
        "mapLocation",
        "memoryPatternOptimization",
        "optLevel",
        "ortDevice",
        "translatorFactory",
    ),
    "it is for image generation": (
        "height",
        "num_images_per_prompt",
        "use_stable_diffusion",
        "width",
    ),
    "LMCache is not configured automatically: on vllm, option.kv_transfer_config enables it, and "
    "option.lmcache_config_file names its configuration": ("lmcache_auto_config",),
    "only a model function stores data in its sessions": ("sessions_path",),
    "the engine schedules waiting requests in every step": ("waiting_steps",),
    "vLLM has removed LongLoRA; other adapters do not need it": ("long_lora_scaling_factors",),
    "the engine does not hold tokens back; option.max_stream_delay bounds the delay of the stream": (
        "output_interval",
    ),
}

_SERVER: Mapping[str, tuple[str, ...]] = {
    "a formatter in model.py is found automatically": ("add_output_formatter",),
    "it is for DJLServing's engines for other kinds of models": ("application", "translatorFactory", "model_name"),
    "it configures DJLServing's metrics": ("metrics_aggregation",),
    "the model defines its inputs": ("includeTokenTypes",),
}


def _by_key() -> dict[str, str]:
    options = {OPTION_PREFIX + name: reason for reason, names in _OPTIONS.items() for name in names}
    return options | {name: reason for reason, names in _SERVER.items() for name in names}


KEYS_WITHOUT_EFFECT: Mapping[str, str] = _by_key()
