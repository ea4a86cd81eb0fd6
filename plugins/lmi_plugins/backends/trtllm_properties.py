"""The keys of TensorRT-LLM's model directories, effective ones and those for NVIDIA's engine build only."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, NonNegativeInt, PositiveInt, create_model

from lmi_core.configuration.properties import Names, NoEffect
from lmi_plugins.backends.torch import TorchProperties
from lmi_plugins.trtllm.requests.limits import RequestLimits

Given = str | None  # any value

WITHOUT_EFFECT = {  # the options of TensorRT-LLM's engine build and scheduling, by the reason
    "it selects TensorRT's kernels; the torch engine has its own": """
        logits_dtype use_fp8_context_fmha use_paged_context_fmha enable_trt_overlap use_cuda_graph attn_backend
        use_custom_all_reduce use_fused_mlp multi_block_mode gemm_plugin gpt_attention_plugin context_fmha
    """,
    "it is read from the model's own configuration": """
        rotary_base rotary_dim rotary_scaling_factor rotary_scaling_type baichuan_model_version chatglm_model_version
        gpt_model_version
    """,
    "it configures how TensorRT's engine is built; this server builds no engine": """
        enable_build_cache fast_build load_by_shard trtllm_checkpoint_path num_checkpoint_workers num_engine_workers
    """,
    "the cache is always paged and inputs are never padded, where the model allows it": """
        paged_kv_cache remove_input_padding
    """,
    "the torch engine does not quantize": """
        fp8_activation_scheme fp8_scheme awq_block_size awq_calib_size awq_format calib_batch_size smoothquant_alpha
        smoothquant_per_token smoothquant_per_channel multi_query_mode q_format calib_size
    """,
    "the cache's block size is fixed": "tokens_per_block",
    "prompts are always computed in chunks while other requests generate": "enable_chunked_context",
}

if TYPE_CHECKING:
    EngineBuildProperties = TorchProperties
else:
    EngineBuildProperties = create_model(
        "EngineBuildProperties",
        __base__=TorchProperties,
        **{
            name: (Annotated[Given, NoEffect(reason)], None)
            for reason, names in WITHOUT_EFFECT.items()
            for name in names.split()
        },
    )


class TrtllmProperties(EngineBuildProperties):
    """The options of TensorRT-LLM for requests and memory."""

    max_rolling_batch_size: Annotated[PositiveInt, Names(environment=("MAX_BATCH_SIZE",))] = Field(
        256, description="Maximum number of requests that generate at the same time."
    )
    batch_scheduler_policy: Annotated[
        Given, NoEffect("as many requests run as fit in memory, and a paused one continues where it stopped")
    ] = "max_utilization"
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
