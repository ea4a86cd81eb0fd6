"""Keys of DJLServing and its containers that have no effect here, each with the reason."""

from collections.abc import Mapping

from lmi_core.configuration.properties import OPTION_PREFIX

_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "it is for AWS Neuron's compiler, and models run on GPU or CPU here": (
        "all_reduce_dtype",
        "amp",
        "attention_layout",
        "cache_layout",
        "cast_logits_dtype",
        "collectives_layout",
        "compiled_graph_path",
        "context_length_estimate",
        "draft_model_compiled_path",
        "enable_mixed_precision_accumulation",
        "enable_saturate_infinity",
        "fuse_qkv",
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
        "shard_over_sequence",
        "unroll",
        "weight_tiling",
    ),
    "it is for DeepSpeed, which is not used here": (
        "checkpoint",
        "ds_config",
        "enable_cuda_graph",
        "max_tokens",
        "replace_method",
        "return_tuple",
        "training_mp_size",
        "triangular_masking",
    ),
    "it says where DJLServing's partitioning writes a model, and nothing is partitioned here": (
        "save_mp_checkpoint_path",
        "sharded_model_dir",
    ),
    "transformers' quantization by bitsandbytes is not used here; a model that is quantized says so itself": (
        "load_in_4bit",
        "load_in_8bit",
    ),
    "weights are read from their files straight to where they are needed": ("low_cpu_mem_usage",),
    "requests say how many tokens to generate (max_new_tokens), and DJLServing ignores this key too": (
        "max_new_tokens",
        "max_tokens_default",
    ),
    "a formatter in model.py is found by itself": ("add_output_formatter",),
    "the model is read where option.model_id says, whatever its files are called": (
        "modelName",
        "modeName",
        "model_name",
    ),
    "the server's own Python runs the model's code; option.enable_venv gives it packages of its own": (
        "pythonExecutable",
    ),
    "it is for DJLServing's engines of other kinds of models": (
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
    "it is for models that make images": (
        "height",
        "num_images_per_prompt",
        "use_stable_diffusion",
        "width",
    ),
    "only a model function keeps something in its sessions": ("sessions_path",),
    "the engine decides in each step which requests wait": ("waiting_steps",),
    "vLLM has taken LongLoRA out; other adapters do not need it": ("long_lora_scaling_factors",),
    "the engine does not put off tokens; option.max_stream_delay bounds how long one may wait": ("output_interval",),
}

_SERVER: Mapping[str, tuple[str, ...]] = {
    "a formatter in model.py is found by itself": ("add_output_formatter",),
    "it is for DJLServing's engines of other kinds of models": ("application", "translatorFactory", "model_name"),
    "it counts measurements of DJLServing's": ("metrics_aggregation",),
    "memory is not planned for before a model is loaded": (
        "gpu.required_memory_mb",
        "gpu.reserved_memory_mb",
        "required_memory_mb",
        "reserved_memory_mb",
    ),
    "it is for models that make embeddings": ("includeTokenTypes", "normalize", "pooling", "reranking"),
}


def _by_key() -> dict[str, str]:
    options = {OPTION_PREFIX + name: reason for reason, names in _OPTIONS.items() for name in names}
    return options | {name: reason for reason, names in _SERVER.items() for name in names}


KEYS_WITHOUT_EFFECT: Mapping[str, str] = _by_key()
