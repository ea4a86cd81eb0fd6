"""Continuous batching over a transformers model: requests join and leave the running batch at any step."""

import logging
import time

import torch

from lmi_core.host.out_of_memory import is_out_of_memory
from lmi_core.texts.bad_texts.text_ban import TokenIndexes
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.adapters.store import AdapterStore, Source, open_store, require_store
from lmi_plugins.torch_engine.cache.block_pool import BlockPool
from lmi_plugins.torch_engine.cache.kept_states import KeptStates
from lmi_plugins.torch_engine.cache.memory import cache_memory, count_blocks, count_kept_states
from lmi_plugins.torch_engine.cache.prefix_cache import PrefixCache
from lmi_plugins.torch_engine.engine.output_processor import OutputProcessor
from lmi_plugins.torch_engine.guides.compiling import GuideCompiler
from lmi_plugins.torch_engine.messages.requests import (
    OWN_NAMES,
    EngineOptions,
    EngineRequest,
    ParameterNames,
    SamplingParameters,
)
from lmi_plugins.torch_engine.messages.results import Results, StepFailed
from lmi_plugins.torch_engine.model.loading import check_tokenizer, context_length, eos_token_ids, load_model
from lmi_plugins.torch_engine.model.model_runner import ModelRunner
from lmi_plugins.torch_engine.model.runner_choice import choose_runner
from lmi_plugins.torch_engine.model.state_layers import fixed_state
from lmi_plugins.torch_engine.model.threads import Threads
from lmi_plugins.torch_engine.requests.active_requests import ActiveRequests
from lmi_plugins.torch_engine.requests.input_processor import EngineLimits, InputProcessor
from lmi_plugins.torch_engine.sampling.outcome import Outcome, read_outcomes
from lmi_plugins.torch_engine.sampling.sampler import Sampler
from lmi_plugins.torch_engine.scheduling.guide_queue import GuideQueue
from lmi_plugins.torch_engine.scheduling.prefill_budget import PrefillBudget
from lmi_plugins.torch_engine.scheduling.scheduler import Scheduler
from lmi_plugins.torch_engine.sequences.step_batch import Chunk, StepBatch
from lmi_plugins.torch_engine.sequences.token_texts import TokenTexts
from lmi_plugins.torch_engine.speculation.draft_model import DraftModel, load_draft_model
from lmi_plugins.torch_engine.speculation.speculation import Speculation
from lmi_plugins.torch_engine.speculation.verification import Check, begin_checks

logger = logging.getLogger(__name__)

MAX_FAILED_STEPS = 5  # in a row; more are the fault of the engine itself


class Engine:
    """A model that serves many requests. Use it from one thread: `add`, `abort`, and `step` while `has_work`."""

    def __init__(self, options: EngineOptions, tokenizer: HuggingFaceTokenizer) -> None:
        """Load the model in the options; raise ConfigurationError if it cannot be loaded or does not fit them."""
        self.model = model = load_model(options)
        check_tokenizer(model, tokenizer)
        self.threads = Threads(model, options.threads)
        length = context_length(model.config, options.max_model_len)
        self.runner = runner = choose_runner(model, length, options)
        draft_model = load_draft_model(options, model, runner, length)
        memory = cache_memory(options, model.device)
        self.pool, cache_bytes = _allocate_cache(options, runner, draft_model, length, memory)
        runner.adapters = open_store(options, model, runner.run_tokens) if options.enable_lora else None
        self.limits = EngineLimits(
            max_length=min(length, self.pool.size * self.pool.block_size),
            max_batch_size=options.max_batch_size,
            vocabulary=model.config.get_text_config().vocab_size,
            cache_bytes=cache_bytes,
            eos_token_ids=eos_token_ids(model),
        )
        ends, vocabulary = self.limits.eos_token_ids, self.limits.vocabulary
        self.guides = GuideQueue(GuideCompiler(tokenizer, vocabulary, ends, options.guide_limits))
        self.prefix_cache = _prefix_cache(options, runner, self.pool, draft_model, memory)
        self.scheduler = Scheduler(
            self.pool,
            options.max_batch_size,
            PrefillBudget(options.max_prefill_tokens, model.device.type == "cuda"),
            options.max_loras,
            self.prefix_cache,
            set if runner.adapters is None else runner.adapters.pinned,
            runner.splits_prompts,
        )
        self.requests = ActiveRequests(self.scheduler, self.guides)
        texts, token_indexes = TokenTexts(tokenizer, ends, vocabulary), TokenIndexes(tokenizer, vocabulary, ends)
        self.inputs = InputProcessor(model, self.limits, runner, self.pool, texts, token_indexes)
        self.sampler = Sampler()
        self.speculation = Speculation(draft_model, options.speculative_length, options.record_acceptance_rate)
        self.outputs = OutputProcessor(self.requests, texts, self.sampler, self.speculation, self.prefix_cache)
        self.latest_chunks: list[Chunk] = []  # what the most recent step computed
        self._failed_steps = 0  # in a row
        self._speculates = draft_model is not None  # or once a request has brought a draft
        logger.info(
            "Cache of %d tokens (at most %.1f MB), sequences of up to %d",
            self.pool.size * self.pool.block_size,
            cache_bytes / 1e6,
            self.limits.max_length,
        )
        if model.device.type == "cuda":
            self.warm_up(options.max_prefill_tokens)

    @torch.inference_mode()
    def warm_up(self, longest: int) -> None:
        """Compute prompts of up to `longest` tokens, because CUDA loads the kernels for a size when it first occurs."""
        if not self.runner.paged:
            return
        longest = min(longest, self.limits.max_length - 1)
        for shift in reversed(range(longest.bit_length())):
            try:
                self._try_prompt(longest >> shift)
            except torch.OutOfMemoryError:
                logger.warning(
                    "The GPU has too little memory for a step of %d prompt tokens; reduce "
                    "option.max_rolling_batch_prefill_tokens",
                    longest >> shift,
                )
                return

    def _try_prompt(self, length: int) -> None:
        """Compute a prompt, its second half again as a chunk with a context, and one token after it."""
        parameters = SamplingParameters(temperature=1.0, top_p=0.5, seed=0)
        (group,) = self.inputs.groups(EngineRequest("warm-up", [0] * length, parameters), OWN_NAMES)
        (sequence,) = group.sequences
        new_blocks = self.pool.extend(sequence.block_table, length + 1)
        assert new_blocks is not None
        try:
            for start, end in (0, length), (length // 2, length), (length, length + 1):
                sequence.token_ids[length:end] = [0] * (end - length)
                batch = StepBatch([Chunk(group, sequence, start, end)])
                self._sample(batch, self.runner.run(batch, new_blocks))
        finally:
            self.pool.release(sequence.block_table)

    @property
    def adapters(self) -> AdapterStore:
        """The adapters that a request can name; AdapterNotFound is raised without `enable_lora`."""
        return require_store(self.runner.adapters)

    def load_adapter(self, name: str, source: Source) -> None:
        """Load an adapter under a name; running requests keep a previous one of that name.

        Raise InvalidAdapter if it is unusable.
        """
        self.adapters.add(name, source, self.adapters.read(source))

    @property
    def has_work(self) -> bool:
        return bool(self.requests.groups)

    def add(self, request: EngineRequest, names: ParameterNames = OWN_NAMES) -> None:
        """Start a request; raise InvalidParameter or ContextLengthExceeded, with the caller's names, if it cannot
        run.
        """
        self.requests.check_unused(request.request_id)
        groups = self.inputs.groups(request, names)
        self._speculates |= groups[0].sequences[0].draft is not None
        self.requests.add(groups, request.parameters.guide)

    def abort(self, request_id: str) -> None:
        """Drop a request and free its memory; ignore unknown and finished ones."""
        self.requests.abort(request_id)

    @torch.inference_mode()
    def step(self) -> Results:
        """Run the model once, and return the new final steps by request."""
        chunks, ended = self._schedule()
        if not chunks:
            return ended
        try:
            begun = time.perf_counter()
            batch, logits = self._run(chunks)
            outcomes, checks = self._sample(batch, logits)
            self.scheduler.prefill_budget.record(chunks, time.perf_counter() - begun)
        except torch.AcceleratorError:  # the device can no longer be used
            raise
        except Exception as error:
            return ended + self._fail(chunks, error)
        self._failed_steps = 0
        return ended + self.outputs.publish(batch, logits, outcomes, checks)

    def _schedule(self) -> tuple[list[Chunk], Results]:
        """Return the chunks to compute, and the ends of requests that cannot run."""
        ended = self.requests.admit_guided()
        chunks = self.scheduler.schedule()
        failed = {} if self.runner.adapters is None else self.runner.adapters.prepare(chunks)
        if failed:
            for chunk in chunks:
                if chunk.sequence.adapter in failed:
                    ended += self.requests.fail_all([chunk.sequence.request_id], failed[chunk.sequence.adapter])
            chunks = [chunk for chunk in chunks if chunk.sequence.adapter not in failed]
        self.latest_chunks = chunks
        return chunks, ended

    def _run(self, chunks: list[Chunk]) -> tuple[StepBatch, torch.Tensor]:
        """Run the model over the chunks and their drafts; return the batch and its logits."""
        if self._speculates:
            self.speculation.extend(chunks, self.scheduler, self.sampler)
        batch = StepBatch(chunks)
        self.threads.use(batch.num_tokens)
        if self.scheduler.copies:
            self.runner.copy(self.scheduler.copies)
        return batch, self.runner.run(batch, self.scheduler.new_blocks)

    def _sample(self, batch: StepBatch, logits: torch.Tensor) -> tuple[list[Outcome], list[Check]]:
        """Choose a token for each chunk of a batch, and remove its drafts from their sequences."""
        outcomes = read_outcomes(batch, logits, self.sampler)
        checks = begin_checks(batch, logits, self.speculation.acceptance) if self._speculates else []
        return outcomes, checks

    def _fail(self, chunks: list[Chunk], error: Exception) -> Results:
        """End the requests of a failed step; raise the error if the engine itself is at fault."""
        self._failed_steps += 1
        if is_out_of_memory(error) or self._failed_steps == MAX_FAILED_STEPS:
            raise error  # a new process starts with all of its memory
        logger.exception("A step of %d requests failed", len(chunks))
        request_ids = [chunk.sequence.request_id for chunk in chunks]
        return self.requests.fail_all(request_ids, StepFailed(f"The generation failed: {error}"))


def _allocate_cache(
    options: EngineOptions, runner: ModelRunner, draft_model: DraftModel | None, length: int, memory: int
) -> tuple[BlockPool, int]:
    """Allocate the KV cache in this many bytes; return its blocks and its bytes."""
    block_bytes = runner.block_bytes + (0 if draft_model is None else draft_model.block_bytes)
    blocks = count_blocks(options, block_bytes, length, memory, runner.block_size, runner.state_bytes)
    runner.allocate(blocks)
    if draft_model is not None:
        draft_model.allocate(blocks)
    return BlockPool(blocks, runner.block_size), blocks * block_bytes


def _prefix_cache(
    options: EngineOptions, runner: ModelRunner, pool: BlockPool, draft_model: DraftModel | None, memory: int
) -> PrefixCache | None:
    """Return the prefix cache; None without one."""
    if not options.enable_prefix_caching or not runner.paged:
        return None
    if not runner.state_bytes:
        return PrefixCache(pool, draft_model is not None)
    kept = count_kept_states(options, runner.state_bytes, memory)
    return PrefixCache(pool, states=KeptStates(kept, pool.block_size, fixed_state)) if kept else None
