"""The parts of an engine, and their creation."""

import logging
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from lmi_core.texts.bad_texts.text_ban import TokenIndexes
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.adapters.store import AdapterStore, open_store
from lmi_plugins.torch_engine.cache.block_pool import BlockPool
from lmi_plugins.torch_engine.cache.memory import count_blocks
from lmi_plugins.torch_engine.cache.prefix_cache import PrefixCache
from lmi_plugins.torch_engine.engine.output_processor import OutputProcessor
from lmi_plugins.torch_engine.guides.compiling import GuideCompiler
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.model.loading import check_tokenizer, context_length, eos_token_ids, load_model
from lmi_plugins.torch_engine.model.model_runner import ModelRunner
from lmi_plugins.torch_engine.model.runner_choice import choose_runner
from lmi_plugins.torch_engine.model.threads import Threads
from lmi_plugins.torch_engine.requests.active_requests import ActiveRequests
from lmi_plugins.torch_engine.requests.input_processor import EngineLimits, InputProcessor
from lmi_plugins.torch_engine.sampling.sampler import Sampler
from lmi_plugins.torch_engine.scheduling.guide_queue import GuideQueue
from lmi_plugins.torch_engine.scheduling.prefill_budget import PrefillBudget
from lmi_plugins.torch_engine.scheduling.scheduler import Scheduler
from lmi_plugins.torch_engine.sequences.token_texts import TokenTexts
from lmi_plugins.torch_engine.speculation.draft_model import DraftModel, load_draft_model
from lmi_plugins.torch_engine.speculation.speculation import Speculation

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineParts:
    """The parts of an engine."""

    model: PreTrainedModel
    limits: EngineLimits
    threads: Threads
    runner: ModelRunner
    adapters: AdapterStore | None  # None without `enable_lora`
    pool: BlockPool
    prefix_cache: PrefixCache | None
    scheduler: Scheduler
    guides: GuideQueue
    requests: ActiveRequests
    inputs: InputProcessor
    sampler: Sampler
    speculation: Speculation
    outputs: OutputProcessor


def load_parts(options: EngineOptions, tokenizer: HuggingFaceTokenizer) -> EngineParts:
    """Load the model and create the other parts; raise ConfigurationError if the options do not fit the model."""
    model = load_model(options)
    check_tokenizer(model, tokenizer)
    threads = Threads(model, options.threads)
    length = context_length(model, options.max_model_len)
    runner = choose_runner(model, length, options)
    draft_model = load_draft_model(options, model, runner, length)
    pool, cache_bytes = allocate_cache(options, runner, draft_model, length, model.device)
    adapters = runner.adapters = open_store(options, model, runner.run_tokens) if options.enable_lora else None
    limits = read_limits(options, model, min(length, pool.size * pool.block_size), cache_bytes)
    texts = TokenTexts(tokenizer, limits.eos_token_ids, limits.vocabulary)
    token_indexes = TokenIndexes(tokenizer, limits.vocabulary, limits.eos_token_ids)
    guides = GuideQueue(GuideCompiler(tokenizer, limits.vocabulary, limits.eos_token_ids, options.guide_limits))
    caches_prefixes = options.enable_prefix_caching and runner.rewinds
    prefix_cache = PrefixCache(pool, draft_model is not None) if caches_prefixes else None
    pinned = set if adapters is None else adapters.pinned
    scheduler = Scheduler(
        pool,
        options.max_batch_size,
        PrefillBudget(options.max_prefill_tokens, model.device.type == "cuda"),
        options.max_loras,
        prefix_cache,
        pinned,
        runner.splits_prompts,
    )
    requests = ActiveRequests(scheduler, guides)
    inputs = InputProcessor(
        model, limits, runner.paged, runner.rewinds, runner.rope, adapters, pool, texts, token_indexes
    )
    sampler = Sampler()
    speculation = Speculation(draft_model, options.speculative_length, options.record_acceptance_rate)
    outputs = OutputProcessor(requests, texts, sampler, speculation, prefix_cache)
    return EngineParts(
        model,
        limits,
        threads,
        runner,
        adapters,
        pool,
        prefix_cache,
        scheduler,
        guides,
        requests,
        inputs,
        sampler,
        speculation,
        outputs,
    )


def allocate_cache(
    options: EngineOptions, runner: ModelRunner, draft_model: DraftModel | None, length: int, device: torch.device
) -> tuple[BlockPool, int]:
    """Allocate the KV cache; return its number of blocks and its bytes."""
    block_bytes = runner.block_bytes + (0 if draft_model is None else draft_model.block_bytes)
    # Two copies, because they are copied when the sequences of a step change.
    states = 2 * runner.state_bytes * options.max_batch_size
    blocks = count_blocks(options, block_bytes, length, device, runner.block_size, states)
    runner.allocate(blocks)
    if draft_model is not None:
        draft_model.allocate(blocks)
    return BlockPool(blocks, runner.block_size), blocks * block_bytes


def read_limits(options: EngineOptions, model: PreTrainedModel, max_length: int, cache_bytes: int) -> EngineLimits:
    """Return the limits of the loaded model and its cache."""
    return EngineLimits(
        max_length=max_length,
        max_batch_size=options.max_batch_size,
        vocabulary=model.config.get_text_config().vocab_size,
        cache_bytes=cache_bytes,
        eos_token_ids=eos_token_ids(model),
    )
