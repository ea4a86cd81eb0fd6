"""Keys and routes of DJLServing 0.27 and newer, from its documentation, test suite and containers."""

_KEYS = """
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
option.lora_dtype option.long_lora_scaling_factors option.enable_auto_tool_choice option.enable_reasoning
option.tool_call_parser option.reasoning_parser option.chat_template option.lmcache_config_file
option.kv_transfer_config option.max_output_size option.enable_venv option.pythonExecutable option.modelName
option.max_new_tokens option.add_output_formatter option.waiting_steps option.max_input_len option.max_output_len
option.max_num_tokens option.max_num_sequences option.max_beam_width option.max_draft_len
option.kv_cache_free_gpu_mem_fraction option.enable_kv_cache_reuse option.enable_trt_overlap
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

DJL_KEYS = _KEYS.split()

_WORKFLOWS = "workflows of several models are not supported"

# Routes that are answered here, in the form in which the handlers declare them.
ANSWERED_ROUTES = (
    "GET /ping",
    "POST /invocations",
    "POST /predictions/{model}",
    "POST /predictions/{model}/{version}",
    "POST /v1/chat/completions",
    "POST /v1/completions",
    "GET /v1/models",
    "GET /metrics",
    "GET /server/metrics",
    "POST /models/{model}/invoke",
    "GET /models",
    "POST /models",
    "GET /models/{model}",
    "PUT /models/{model}",
    "DELETE /models/{model}",
    "GET /workflows",
    "DELETE /workflows/{model}",
    "POST /server/logging",
    "GET /console",
    "GET /models/{model}/adapters",
    "POST /models/{model}/adapters",
    "GET /models/{model}/adapters/{name}",
    "DELETE /models/{model}/adapters/{name}",
    "POST /models/{model}/adapters/{name}/update",
    "GET /adapters",
    "POST /adapters",
    "GET /adapters/{name}",
    "DELETE /adapters/{name}",
    "POST /adapters/{name}/update",
    "GET /v2/health/live",
    "GET /v2/health/ready",
    "GET /v2/models/{model}",
    "GET /v2/models/{model}/ready",
    "POST /v2/models/{model}/infer",
)

# Routes that answer 404 here, with the reason.
OTHER_ROUTES = {
    "POST /workflows": _WORKFLOWS,
}
