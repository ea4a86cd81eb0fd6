"""Continuous batching over a transformers model: requests join and leave the running batch at any step."""

import logging
import time
from typing import Self

import torch

from lmi_core.host.out_of_memory import is_out_of_memory
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.adapters.store import AdapterStore, Source, require_store
from lmi_plugins.torch_engine.cache.block_pool import BlockPool
from lmi_plugins.torch_engine.engine.output_processor import StepOutput
from lmi_plugins.torch_engine.engine.parts import EngineParts, load_parts
from lmi_plugins.torch_engine.messages.requests import (
    OWN_NAMES,
    EngineOptions,
    EngineRequest,
    ParameterNames,
    SamplingParameters,
)
from lmi_plugins.torch_engine.messages.results import Results, StepFailed
from lmi_plugins.torch_engine.model.soft_prompt import embedding_weight
from lmi_plugins.torch_engine.requests.input_processor import EngineLimits
from lmi_plugins.torch_engine.sampling.outcome import read_outcomes
from lmi_plugins.torch_engine.sequences.step_batch import Chunk, StepBatch
from lmi_plugins.torch_engine.speculation.verification import begin_checks

logger = logging.getLogger(__name__)

MAX_FAILED_STEPS = 5  # in a row; more are the fault of the engine itself


class Engine:
    """A model that serves many requests. Use it from one thread: `add`, `abort`, and `step` while `has_work`."""

    def __init__(self, parts: EngineParts) -> None:
        self.parts = parts
        self.latest_chunks: list[Chunk] = []  # what the most recent step computed
        self._failed_steps = 0  # in a row
        self._speculates = parts.speculation.has_draft_model  # or once a request has brought a draft

    @classmethod
    def load(cls, options: EngineOptions, tokenizer: HuggingFaceTokenizer) -> Self:
        """Load the model in the options; raise ConfigurationError if it cannot be loaded."""
        engine = cls(load_parts(options, tokenizer))
        logger.info(
            "Cache of %d tokens (at most %.1f MB), sequences of up to %d",
            engine.pool.size * engine.pool.block_size,
            engine.limits.cache_bytes / 1e6,
            engine.limits.max_length,
        )
        if engine.parts.model.device.type == "cuda":
            engine.warm_up(options.max_prefill_tokens)
        return engine

    @torch.inference_mode()
    def warm_up(self, longest: int) -> None:
        """Compute prompts of up to `longest` tokens, because CUDA loads the kernels for a size when it first occurs."""
        if not self.parts.runner.paged:
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
        (group,) = self.parts.inputs.groups(EngineRequest("warm-up", [0] * length, parameters), OWN_NAMES)
        (sequence,) = group.sequences
        new_blocks = self.pool.extend(sequence.block_table, length + 1)
        assert new_blocks is not None
        try:
            for start, end in (0, length), (length // 2, length), (length, length + 1):
                sequence.token_ids[length:end] = [0] * (end - length)
                batch = StepBatch([Chunk(group, sequence, start, end)])
                self._sample(batch, self.parts.runner.run(batch, new_blocks))
        finally:
            self.pool.release(sequence.block_table)

    @property
    def limits(self) -> EngineLimits:
        return self.parts.limits

    @property
    def pool(self) -> BlockPool:
        return self.parts.pool

    @property
    def hidden_size(self) -> int:
        """The size of the model's embeddings."""
        return embedding_weight(self.parts.model).shape[1]

    @property
    def adapters(self) -> AdapterStore:
        """The adapters that a request can name; AdapterNotFound is raised without `enable_lora`."""
        return require_store(self.parts.adapters)

    def load_adapter(self, name: str, source: Source) -> None:
        """Load an adapter under a name; running requests keep a previous one of that name.

        Raise InvalidAdapter if it is unusable.
        """
        self.adapters.add(name, source, self.adapters.read(source))

    def unload_adapter(self, name: str) -> None:
        """Unload an adapter; running requests keep it. Raise AdapterNotFound if there is none."""
        self.adapters.remove(name)

    @property
    def unnoticed_tokens(self) -> int:
        """The number of prompt tokens, or tokens of other work, that one step may add without delaying decoding
        much.
        """
        return self.parts.scheduler.unnoticed_tokens

    @property
    def has_work(self) -> bool:
        return bool(self.parts.requests.groups)

    def add(self, request: EngineRequest, names: ParameterNames = OWN_NAMES) -> None:
        """Start a request; raise InvalidParameter or ContextLengthExceeded, with the caller's names, if it cannot
        run.
        """
        self.parts.requests.check_unused(request.request_id)
        groups = self.parts.inputs.groups(request, names)
        self._speculates |= groups[0].sequences[0].draft is not None
        self.parts.requests.add(groups, request.parameters.guide)

    def abort(self, request_id: str) -> None:
        """Drop a request and free its memory; ignore unknown and finished ones."""
        self.parts.requests.abort(request_id)

    @torch.inference_mode()
    def step(self) -> Results:
        """Run the model once, and return the new final steps by request."""
        chunks, ended = self._schedule()
        if not chunks:
            return ended
        try:
            begun = time.perf_counter()
            batch, logits = self._run(chunks)
            output = self._sample(batch, logits)
            self.parts.scheduler.prefill_budget.record(chunks, time.perf_counter() - begun)
        except torch.AcceleratorError:  # the device can no longer be used
            raise
        except Exception as error:
            return ended + self._fail(chunks, error)
        self._failed_steps = 0
        return ended + self.parts.outputs.publish(output)

    def _schedule(self) -> tuple[list[Chunk], Results]:
        """Return the chunks to compute, and the ends of requests that cannot run."""
        parts = self.parts
        ended = parts.requests.admit_guided()
        chunks = parts.scheduler.schedule()
        failed = {} if parts.adapters is None else parts.adapters.prepare(chunks)
        if failed:
            for chunk in chunks:
                if chunk.sequence.adapter in failed:
                    ended += parts.requests.fail_all([chunk.sequence.request_id], failed[chunk.sequence.adapter])
            chunks = [chunk for chunk in chunks if chunk.sequence.adapter not in failed]
        self.latest_chunks = chunks
        return chunks, ended

    def _run(self, chunks: list[Chunk]) -> tuple[StepBatch, torch.Tensor]:
        """Run the model over the chunks and their drafts; return the batch and its logits."""
        parts = self.parts
        if self._speculates:
            parts.speculation.extend(chunks, parts.scheduler, parts.sampler)
        batch = StepBatch(chunks)
        parts.threads.use(batch.num_tokens)
        if parts.scheduler.copies:
            parts.runner.copy(parts.scheduler.copies)
        return batch, parts.runner.run(batch, parts.scheduler.new_blocks)

    def _sample(self, batch: StepBatch, logits: torch.Tensor) -> StepOutput:
        """Choose tokens by the logits of a batch, and remove its drafts from their sequences."""
        outcomes = read_outcomes(batch, logits, self.parts.sampler)
        checks = begin_checks(batch, logits, self.parts.speculation.acceptance) if self._speculates else []
        return StepOutput(batch, logits, outcomes, checks)

    def _fail(self, chunks: list[Chunk], error: Exception) -> Results:
        """End the requests of a failed step; raise the error if the engine itself is at fault."""
        self._failed_steps += 1
        if is_out_of_memory(error) or self._failed_steps == MAX_FAILED_STEPS:
            raise error  # a new process starts with all of its memory
        logger.exception("A step of %d requests failed", len(chunks))
        request_ids = [chunk.sequence.request_id for chunk in chunks]
        return self.parts.requests.fail_all(request_ids, StepFailed(f"The generation failed: {error}"))
