"""Requests to the torch engine. Imports no torch, so that other processes need not have it."""

from typing import Any, Literal, NamedTuple

import msgspec

from lmi_core.generation.output import Given
from lmi_core.generation.parameters import GUIDES, ExtendedParameters
from lmi_core.payloads.written_json import text_of
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingOptions

MIB = 2**20
GREEDY_BELOW = 1e-5  # dividing by a temperature below this overflows

DataType = Literal["auto", "fp32", "fp16", "bf16", "float32", "float16", "bfloat16", "half", "float"]
CpuRunner = Literal["auto", "torch", "openvino"]
Quantization = Literal["int8", "int4"]
TensorType = Literal["float32", "float16", "bfloat16"]


class TensorData(msgspec.Struct, array_like=True, frozen=True):
    """A tensor as bytes, contiguous and little-endian, with torch's name of its type."""

    dtype: TensorType
    shape: list[int]
    data: bytes


class AdapterTensors(msgspec.Struct, array_like=True, frozen=True):
    """A LoRA adapter without files, with tensors named as in PEFT's adapter_model.safetensors."""

    tensors: dict[str, TensorData]
    config: dict[str, Any] | None = None  # adapter_config.json; None: add B times A unscaled, with any rank


class Guide(msgspec.Struct, array_like=True, frozen=True):
    """A constraint on the text: a choice, a JSON schema, a regular expression, a grammar or a structural tag.

    Schemas and tags are given as JSON.
    """

    kind: Literal["choice", "json", "regex", "grammar", "structural_tag"]
    content: str | list[str]  # a list only for `choice`
    reasoning: list[str] | None = None  # the begin and end markers of a text before it, as in LMI's `guided_reasoning`


def guide_of(parameters: ExtendedParameters) -> Guide | None:
    """Return the constraint of a request, if any; schemas and tags become text."""
    for name in GUIDES:
        if (content := getattr(parameters, name)) is not None:
            kind: Any = name.removeprefix("guided_")
            text = text_of(content) if isinstance(content, dict) else content
            return Guide(kind, text, parameters.guided_reasoning)
    return None


class GuideLimits(msgspec.Struct, array_like=True, frozen=True):
    """The limits of one guide; requests that exceed them are refused or ended."""

    size: int = MIB  # bytes of text
    compile_seconds: int = 20  # of CPU time
    memory: int = 512 * MIB  # bytes, during compilation
    mask_seconds: float = 0.05  # of CPU time, to compute the next allowed tokens of one sequence


class ReasoningLimit(msgspec.Struct, array_like=True, frozen=True):
    """The maximum number of reasoning tokens, as LMI's `reasoning_budget`."""

    tokens: int
    starts: list[list[int]]
    ends: list[list[int]]
    inside: bool


class Repetition(msgspec.Struct, array_like=True, frozen=True):
    """The runs of tokens that end a generation, as LMI's `repetition_detection`."""

    shortest: int
    longest: int
    count: int


class SamplingParameters(msgspec.Struct, array_like=True, frozen=True):
    """How a request's tokens are chosen. Temperature 0 is greedy; `top_k` 0 or -1 and `top_p` 1 keep all tokens."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = None  # None: a new one each time
    max_new_tokens: int = 30
    stop_sequences: list[str] = []
    prompt_log_probs: bool = False  # fills `GenerationStep.prefill` of the first step
    prompt_logits: bool = False  # fills `GenerationStep.prompt_logits` of the first step
    generation_logits: bool = False  # fills `GenerationStep.generation_logits` of every step
    min_p: float = 0.0
    typical_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalize_prompt: bool = False  # whether presence and frequency penalties also count prompt tokens
    no_repeat_ngram_size: int = 0
    logit_bias: dict[int, float] = {}
    embedding_bias: bytes | None = None  # float32, little-endian: added to the logits of the vocabulary
    bad_sequences: list[list[int]] = []  # token ids that must not follow each other; a single id must never occur
    bad_texts: list[str] = []  # texts that must not be generated, however they are split into tokens
    min_length: int = 0  # tokens generated before the model may end the sequence
    ignore_end: bool = False  # continue after the end-of-sequence token
    eos_token_ids: list[int] | None = None  # None: the model's own ones
    stop_token_sequences: list[list[int]] = []
    include_stop: bool = False  # in the text
    skip_special_tokens: bool = True  # in the text
    spaces_between_special_tokens: bool = True
    markers: tuple[str, ...] = ()  # special tokens that are part of one of these always remain in the text
    num_top_tokens: int = 0  # fills `Token.top_tokens`
    num_prompt_top_tokens: int = 0  # the same in `GenerationStep.prefill`
    num_samples: int = 1  # number of sequences, each with a seed derived from `seed`
    guide: Guide | None = None
    num_beams: int = 1  # above 1: return this many sequences, all at the end, best first
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    allowed_ids: list[int] | None = None  # if set, only these tokens are generated
    reasoning_limit: ReasoningLimit | None = None
    # Tokens reported in `Token.top_tokens` instead of the most likely ones, after the generated token
    top_ids: list[int] = []
    repetition: Repetition | None = None
    cache_salt: str | None = None  # sequences with different salts share no blocks
    ranks: bool = False  # fills `Token.rank` of generated tokens

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def num_sequences(self) -> int:
        """The number of sequences in the answer."""
        return max(self.num_samples, self.num_beams)


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
        logit_bias={int(token_id): bias for token_id, bias in (parameters.logit_bias or {}).items()},
        bad_texts=parameters.bad_sequences or [],
        ignore_end=parameters.ignore_eos_token,
        stop_token_sequences=[[token_id] for token_id in parameters.stop_token_ids or ()],
        include_stop=parameters.include_stop_str_in_output,
        markers=markers,
        prompt_log_probs=parameters.wants_prefill,
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


class EngineRequest(msgspec.Struct, array_like=True, frozen=True):
    """A prompt to continue. The id is the caller's, and unique among the requests that the engine still works on."""

    request_id: str
    prompt_ids: list[int]
    parameters: SamplingParameters
    adapter: str | None = None  # the name of a loaded adapter; None: the base model
    # [virtual tokens, hidden size]: the embeddings of the ids from the vocabulary's size upwards. If the prompt
    # contains none of these ids, all of the embeddings precede it.
    soft_prompt: TensorData | None = None
    draft_ids: list[int] = []  # a guess of the answer's first tokens, verified in a single step
    # [draft tokens, vocabulary]: the draft was drawn from the softmax of these; without them, sampling treats the draft
    # as certain.
    draft_logits: TensorData | None = None
    given: list[Given] = []  # by sequence, if a previous engine has started the request


class EngineOptions(msgspec.Struct, array_like=True, frozen=True):
    """The options that an engine is loaded with."""

    model: str  # a directory, or a model id on the Hugging Face hub
    revision: str | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False
    dtype: DataType = "auto"
    device: str = "auto"  # auto, cpu, cuda, cuda:N or mps
    cpu_runner: CpuRunner = "auto"  # the implementation that computes on the CPU
    quantize: Quantization | None = None  # of the weights, on the CPU only
    enforce_eager: bool = False  # do not use CUDA graphs
    max_batch_size: int = 32  # sequences that run at the same time
    max_prefill_tokens: int = 512  # prompt tokens in one step, over all sequences
    max_model_len: int | None = None  # None: from the model's configuration
    kv_cache_memory: int | None = None  # bytes
    kv_cache_share: float | None = None  # of the memory that is free once the model is loaded
    replicas_on_device: int = 1  # they share that memory
    gpu_memory_utilization: float | None = None  # share of a GPU's memory for weights and cache
    threads: int | None = None  # on the CPU; None: torch's choice
    enable_lora: bool = True
    max_loras: int = 4  # adapters used by running sequences at the same time, and kept on the device
    max_cpu_loras: int | None = None  # adapters in main memory; None: as many as max_loras
    max_lora_rank: int = 16
    adapters: dict[str, str] = {}  # the directories of adapters loaded at the start, by name
    pinned_adapters: list[str] = []  # those that stay on the device
    # Skip adapters that cannot be loaded instead of failing, because some were added while serving
    leaves_out_adapters: bool = False
    enable_prefix_caching: bool = True
    speculative_draft_model: str | None = None  # a directory or a model id; must have the same vocabulary
    speculative_length: int = 5  # maximum number of tokens drafted at a time
    record_acceptance_rate: bool = False  # log it for each completed request
    guide_limits: GuideLimits = GuideLimits()
    embedding: EmbeddingOptions = EmbeddingOptions()


class ParameterNames(NamedTuple):
    """An interface's names of the parameters that only the engine can check."""

    num_beams: str = "`num_beams`"
    draft_ids: str = "draft tokens"


OWN_NAMES = ParameterNames()
