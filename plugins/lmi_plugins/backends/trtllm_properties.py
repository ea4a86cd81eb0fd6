"""The keys of TensorRT-LLM's model directories, effective ones and those for NVIDIA's engine build only."""

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from lmi_core.configuration.properties import Names, NoEffect
from lmi_plugins.backends.torch import TorchProperties
from lmi_plugins.trtllm.requests.limits import RequestLimits

Given = str | None  # any value

OWN_KERNELS = NoEffect("it selects TensorRT's kernels; the torch engine has its own")
OWN_CONFIGURATION = NoEffect("it is read from the model's own configuration")
NOTHING_BUILT = NoEffect("it configures how TensorRT's engine is built; this server builds no engine")
PAGED = NoEffect("the cache is always paged and inputs are never padded, if the model allows it")
NOT_QUANTIZED = NoEffect("the torch engine does not quantize")


class EngineBuildProperties(TorchProperties):
    """The options of TensorRT-LLM's engine build and scheduling, which have no effect here."""

    fp8_activation_scheme: Annotated[Given, NOT_QUANTIZED] = None
    fp8_scheme: Annotated[Given, NOT_QUANTIZED] = None
    awq_block_size: Annotated[Given, NOT_QUANTIZED] = None
    awq_calib_size: Annotated[Given, NOT_QUANTIZED] = None
    awq_format: Annotated[Given, NOT_QUANTIZED] = None
    calib_batch_size: Annotated[Given, NOT_QUANTIZED] = None
    logits_dtype: Annotated[Given, OWN_KERNELS] = None
    rotary_base: Annotated[Given, OWN_CONFIGURATION] = None
    rotary_dim: Annotated[Given, OWN_CONFIGURATION] = None
    rotary_scaling_factor: Annotated[Given, OWN_CONFIGURATION] = None
    rotary_scaling_type: Annotated[Given, OWN_CONFIGURATION] = None
    use_fp8_context_fmha: Annotated[Given, OWN_KERNELS] = None
    use_paged_context_fmha: Annotated[Given, OWN_KERNELS] = None
    tokens_per_block: Annotated[Given, NoEffect("the cache's block size is fixed")] = None
    batch_scheduler_policy: Annotated[
        Given, NoEffect("as many requests run as fit in memory, and a paused one continues where it stopped")
    ] = "max_utilization"
    enable_chunked_context: Annotated[
        Given, NoEffect("prompts are always computed in chunks while other requests generate")
    ] = None
    enable_trt_overlap: Annotated[Given, OWN_KERNELS] = None
    use_cuda_graph: Annotated[Given, OWN_KERNELS] = None
    attn_backend: Annotated[Given, OWN_KERNELS] = None
    enable_build_cache: Annotated[Given, NOTHING_BUILT] = None
    fast_build: Annotated[Given, NOTHING_BUILT] = None
    use_custom_all_reduce: Annotated[Given, OWN_KERNELS] = None
    use_fused_mlp: Annotated[Given, OWN_KERNELS] = None
    multi_block_mode: Annotated[Given, OWN_KERNELS] = None
    gemm_plugin: Annotated[Given, OWN_KERNELS] = None
    gpt_attention_plugin: Annotated[Given, OWN_KERNELS] = None
    context_fmha: Annotated[Given, OWN_KERNELS] = None
    paged_kv_cache: Annotated[Given, PAGED] = None
    remove_input_padding: Annotated[Given, PAGED] = None
    baichuan_model_version: Annotated[Given, OWN_CONFIGURATION] = None
    chatglm_model_version: Annotated[Given, OWN_CONFIGURATION] = None
    gpt_model_version: Annotated[Given, OWN_CONFIGURATION] = None
    load_by_shard: Annotated[Given, NOTHING_BUILT] = None
    trtllm_checkpoint_path: Annotated[Given, NOTHING_BUILT] = None
    num_checkpoint_workers: Annotated[Given, NOTHING_BUILT] = None
    num_engine_workers: Annotated[Given, NOTHING_BUILT] = None
    smoothquant_alpha: Annotated[Given, NOT_QUANTIZED] = None
    smoothquant_per_token: Annotated[Given, NOT_QUANTIZED] = None
    smoothquant_per_channel: Annotated[Given, NOT_QUANTIZED] = None
    multi_query_mode: Annotated[Given, NOT_QUANTIZED] = None
    q_format: Annotated[Given, NOT_QUANTIZED] = None
    calib_size: Annotated[Given, NOT_QUANTIZED] = None


class TrtllmProperties(EngineBuildProperties):
    """The options of TensorRT-LLM for requests and memory."""

    max_rolling_batch_size: Annotated[PositiveInt, Names(environment=("MAX_BATCH_SIZE",))] = Field(
        256, description="Maximum number of requests that generate at the same time."
    )
    max_draft_len: NonNegativeInt | None = Field(
        None, description="Maximum number of draft tokens in a request; a request with more is refused."
    )
    max_input_len: PositiveInt = Field(
        1024, description="Maximum number of tokens in a prompt; a longer one is refused."
    )
    max_output_len: PositiveInt = Field(
        512, description="Maximum number of tokens to generate; a request for more is refused."
    )
    max_num_tokens: PositiveInt = Field(
        16384, description="Maximum number of tokens in one step; a longer prompt is refused."
    )
    max_beam_width: PositiveInt | None = Field(
        None, description="Maximum number of beams. Default: max_rolling_batch_size."
    )
    max_num_sequences: PositiveInt | None = Field(
        None,
        description="Maximum number of requests that generate at the same time. Default: max_rolling_batch_size.",
    )
    enable_prefix_caching: Annotated[bool, Names(aliases=("enable_kv_cache_reuse", "enable_block_reuse"))] = Field(
        True, description="Cache the keys and values of prompts, and reuse them for prompts with the same prefix."
    )
    kv_cache_free_gpu_mem_fraction: Annotated[float | None, Names(aliases=("free_gpu_memory_fraction",))] = Field(
        None, gt=0, lt=1, description="Share of the memory left free by the loaded model to use for the KV cache."
    )
    max_model_len: Annotated[PositiveInt | None, Names(aliases=("max_seq_len",))] = Field(
        None, description="Maximum length of prompt and answer together, in tokens. Default: the model's own limit."
    )

    @property
    def limits(self) -> RequestLimits:
        return RequestLimits(
            self.max_input_len, self.max_output_len, self.max_num_tokens, self.max_beam_width, self.max_draft_len
        )
