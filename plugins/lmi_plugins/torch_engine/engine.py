"""Continuous batching over a transformers model: requests join and leave the running batch at any step."""

import logging
import math
import time
from collections.abc import Iterable

import torch
from transformers import PreTrainedModel

from lmi_core.errors import AdapterNotFound, ContextLengthExceeded, GenerationFailed, InvalidParameter, LmiError
from lmi_core.generation import FinishReason, GenerationStep
from lmi_core.texts.bad_texts.text_ban import TextBan
from lmi_core.texts.bad_texts.token_indexes import TokenIndexes
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.texts.token_stream import TokenStream
from lmi_plugins.torch_engine.adapters.store import AdapterStore, Source, open_store
from lmi_plugins.torch_engine.beams.checks import check_beams
from lmi_plugins.torch_engine.beams.search import BeamSearch, beam_rows
from lmi_plugins.torch_engine.guides.compiling import GuideCompiler
from lmi_plugins.torch_engine.model.attention import UnsupportedAttention
from lmi_plugins.torch_engine.model.loading import context_length, end_of_sequence_ids, load_model
from lmi_plugins.torch_engine.model.model_runner import ModelRunner
from lmi_plugins.torch_engine.model.paged_runner import PagedRunner
from lmi_plugins.torch_engine.model.row_runner import RowRunner
from lmi_plugins.torch_engine.model.soft_prompt import with_soft_prompt
from lmi_plugins.torch_engine.parameter_checks import check_parameters
from lmi_plugins.torch_engine.sampling.likeliest import read_likeliest
from lmi_plugins.torch_engine.sampling.outcome import Outcome, read_outcomes
from lmi_plugins.torch_engine.sampling.processing import process
from lmi_plugins.torch_engine.sampling.raw_logits import collect_logits, take_generation_logits, take_prompt_logits
from lmi_plugins.torch_engine.sampling.sampler import Sampler
from lmi_plugins.torch_engine.scheduling.block_pool import BLOCK_SIZE, BlockPool
from lmi_plugins.torch_engine.scheduling.conditioning import condition
from lmi_plugins.torch_engine.scheduling.guide_queue import GuideQueue
from lmi_plugins.torch_engine.scheduling.memory import count_blocks
from lmi_plugins.torch_engine.scheduling.prefix_cache import PrefixCache
from lmi_plugins.torch_engine.scheduling.scheduler import Scheduler
from lmi_plugins.torch_engine.sequence import Chunk, Sequence
from lmi_plugins.torch_engine.speculation.draft import read_draft
from lmi_plugins.torch_engine.speculation.draft_model import load_draft_model
from lmi_plugins.torch_engine.speculation.speculation import Speculation
from lmi_plugins.torch_engine.speculation.verification import Check, begin_checks, merged, verify
from lmi_plugins.torch_engine.token_texts import TokenTexts
from lmi_plugins.torch_engine.worker.messages import EngineOptions, EngineRequest, SamplingParameters
from lmi_plugins.torch_engine.worker.threads import Threads

logger = logging.getLogger(__name__)

# An error ends its request; a step with a finish reason ends one of its sequences.
Result = GenerationStep | LmiError

NO_TOKEN = "the model gave no numbers, or the request's parameters leave no token to choose"


class Engine:
    """To be used from one thread: `add` and `abort` requests, and `step` while `has_work`."""

    def __init__(self, options: EngineOptions, tokenizer: HuggingFaceTokenizer) -> None:
        """Loads the model; raises ConfigurationError."""
        model = load_model(options)
        self._threads = Threads(model, options.threads)
        length = context_length(model, options.max_model_len)
        self._runner = choose_runner(model, length)
        draft_model = load_draft_model(options, model, self._runner.paged, length)
        block_bytes = self._runner.block_bytes + (draft_model.block_bytes if draft_model is not None else 0)
        blocks = count_blocks(options, block_bytes, length, model.device)
        self._runner.allocate(blocks)
        if draft_model is not None:
            draft_model.allocate(blocks)
        self.speculation = Speculation(draft_model, options.speculative_length, options.record_acceptance_rate)
        self._speculates = draft_model is not None  # or a request has brought a draft
        self._model = model
        self._adapters = open_store(options, model, self._runner.run_tokens) if options.enable_lora else None
        self._runner.adapters = self._adapters
        self.pool = BlockPool(blocks)
        self.cache_bytes = blocks * block_bytes  # what keys and values take at most
        self.max_length = min(length, blocks * BLOCK_SIZE)  # of a prompt and what is generated from it, in tokens
        self.vocabulary = model.config.get_text_config().vocab_size
        caches = options.enable_prefix_caching and self._runner.paged
        self.prefix_cache = PrefixCache(self.pool, draft_model is not None) if caches else None
        self._scheduler = Scheduler(
            self.pool,
            options.max_batch_size,
            options.max_prefill_tokens,
            options.max_loras,
            self.prefix_cache,
        )
        self.max_batch_size = options.max_batch_size
        self._sampler = Sampler()
        self.end_ids = end_of_sequence_ids(model)
        self._texts = TokenTexts(tokenizer, self.end_ids, self.vocabulary)
        self._token_indexes = TokenIndexes(tokenizer, self.vocabulary, self.end_ids)
        self._guided = GuideQueue(GuideCompiler(tokenizer, self.vocabulary, self.end_ids))
        self._sequences: dict[str, list[Sequence]] = {}  # by request, those that have not ended
        self.latest_chunks: list[Chunk] = []  # what the latest step computed
        logger.info(
            "Cache of %d tokens (at most %.1f MB), sequences of up to %d",
            blocks * BLOCK_SIZE,
            self.cache_bytes / 1e6,
            self.max_length,
        )

    @property
    def hidden_size(self) -> int:
        """Of the embeddings."""
        weight = self._model.get_input_embeddings().weight
        assert isinstance(weight, torch.Tensor)
        return weight.shape[1]

    @property
    def adapters(self) -> AdapterStore:
        """Those that a request can name. Raises AdapterNotFound without `enable_lora`."""
        if self._adapters is None:
            raise AdapterNotFound("this model takes no adapters: option.enable_lora is false")
        return self._adapters

    def load_adapter(self, name: str, source: Source) -> None:
        """In place of one of that name; what runs with that one goes on with it. Raises InvalidAdapter."""
        self.adapters.add(name, source, self.adapters.read(source))

    def unload_adapter(self, name: str) -> None:
        """What runs with it goes on. Raises AdapterNotFound."""
        self.adapters.remove(name)

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work or len(self._guided) > 0

    def add(self, request: EngineRequest) -> None:
        """Raises InvalidParameter or ContextLengthExceeded where the request can never run."""
        request, soft_prompt = with_soft_prompt(request, self._model)
        self._check(request, 0 if soft_prompt is None else len(soft_prompt))
        adapter = None if request.adapter is None else self.adapters.get(request.adapter)
        sequences = [self._new_sequence(request, index) for index in range(request.parameters.num_samples)]
        ban = self._text_ban(request.parameters)
        draft = read_draft(request, self.vocabulary, self._runner.paged)
        self._speculates |= draft is not None
        for sequence in sequences:
            condition(sequence, adapter, soft_prompt)
            sequence.draft = draft
            sequence.state.text_ban = ban
        if request.parameters.num_beams > 1:
            check_beams(sequences[0], self.pool.size, self.max_batch_size, self._runner.paged)
            sequences = [BeamSearch(sequences[0], self.pool, self._texts).beams[0]]
        self._sequences[request.request_id] = sequences
        if request.parameters.guide is not None:
            self._guided.add(request.parameters.guide, tuple(sequences))
        else:
            self._start(sequences)

    def _new_sequence(self, request: EngineRequest, index: int) -> Sequence:
        sequence = Sequence.of(request, self.max_length, self._new_stream(request), index)
        own = request.parameters.end_ids
        sequence.end_ids = self.end_ids if own is None else frozenset(own)
        sequence.started = index > 0  # what is told of the prompt comes once
        return sequence

    def _text_ban(self, parameters: SamplingParameters) -> TextBan | None:
        if not parameters.bad_texts:
            return None
        return self._token_indexes.ban(
            parameters.bad_texts,
            skip_special_tokens=parameters.skip_special_tokens,
            spaces_between_special_tokens=parameters.spaces_between_special_tokens,
            ignore_end=parameters.ignore_end,
        )

    def _new_stream(self, request: EngineRequest) -> TokenStream:
        return self._texts.stream(request.prompt_ids, request.parameters)

    def _start(self, sequences: Iterable[Sequence]) -> None:
        for sequence in sequences:
            self._scheduler.add(sequence)

    def abort(self, request_id: str) -> None:
        """Nothing more comes for this request, and its memory is free. Unknown and finished ones are ignored."""
        sequences = self._sequences.pop(request_id, [])
        if not self._guided.discard(request_id):
            for sequence in sequences:
                self._scheduler.remove(sequence)

    def _end(self, sequence: Sequence) -> None:
        """It has all its tokens; others of its request may go on."""
        self._scheduler.remove(sequence)
        self.speculation.record(sequence)
        others = self._sequences[sequence.request_id]
        others.remove(sequence)
        if not others:
            del self._sequences[sequence.request_id]

    def _admit_guided(self) -> list[tuple[str, Result]]:
        """Those whose guides are compiled join the batch; the ends of requests whose guides are wrong."""
        if not self._scheduler.has_work:
            self._guided.wait()
        ready, refused = self._guided.take()
        self._start(ready)
        for request_id, _ in refused:
            del self._sequences[request_id]
        return list(refused)

    @torch.inference_mode()
    def step(self) -> list[tuple[str, Result]]:
        """Run the model once; the tokens that became final, by request."""
        refused = self._admit_guided() if self._guided else []
        chunks, ended = self._with_adapters(self._scheduler.schedule())
        self.latest_chunks = chunks
        ended += refused
        if not chunks:
            return ended
        checks: list[Check] = []
        try:
            if self._speculates:
                self.speculation.extend(chunks, self._scheduler, self._sampler)
            begun = time.perf_counter()
            self._threads.use(sum(map(len, chunks)))
            if self._scheduler.copies:
                self._runner.copy(self._scheduler.copies)
            logits = self._runner.run(chunks, self._scheduler.new_blocks)
            collect_logits(chunks, logits)
            outcomes = read_outcomes(chunks, logits, self._sampler)
            searches = beam_rows(chunks)
            self._scheduler.prefill_budget.record(chunks, time.perf_counter() - begun)
            if self._speculates:
                checks = begin_checks(chunks, logits, self.speculation.acceptance)
        except torch.AcceleratorError:  # the device is beyond use
            raise
        except Exception as error:
            logger.exception("A step of %d requests failed", len(chunks))
            return ended + self._fail_all([chunk.sequence for chunk in chunks], str(error))
        results = [self._advance(chunk, outcome) for chunk, outcome in zip(chunks, outcomes, strict=True)]
        if checks:
            results += self._verify(checks)
        searched = [result for search, rows in searches for result in self._search(search, logits[rows])]
        return ended + [result for result in results if result is not None] + searched

    def _with_adapters(self, chunks: list[Chunk]) -> tuple[list[Chunk], list[tuple[str, Result]]]:
        """Those whose adapters are on the device, and the ends of requests whose adapters cannot be."""
        failed = self._adapters.prepare(chunks) if self._adapters is not None else {}
        if not failed:
            return chunks, []
        ready = [chunk for chunk in chunks if chunk.sequence.adapter not in failed]
        lost = [(chunk.sequence, failed[adapter]) for chunk in chunks if (adapter := chunk.sequence.adapter) in failed]
        return ready, [end for sequence, reason in lost for end in self._fail_all([sequence], reason)]

    def _advance(self, chunk: Chunk, outcome: Outcome) -> tuple[str, Result] | None:
        sequence = chunk.sequence
        if sequence.request_id not in self._sequences:
            return None  # another sequence of the request has failed in this step
        sequence.computed = chunk.end if chunk.draft is None else chunk.end - len(chunk.draft)
        if self.prefix_cache is not None:
            self.prefix_cache.keep(sequence)
        sequence.prompt_log_probs += outcome.prompt_log_probs
        sequence.prompt_ranks += outcome.prompt_ranks
        sequence.prompt_top_tokens += outcome.prompt_top_tokens
        return None if outcome.token_id is None else self._take(sequence, outcome)

    def _take(self, sequence: Sequence, outcome: Outcome) -> tuple[str, Result] | None:
        """What can be told of the sequence with its next token."""
        assert outcome.token_id is not None
        if sequence.request_id not in self._sequences:
            return None  # another sequence of the request has failed in this step
        if sequence.failure is not None or not math.isfinite(outcome.log_prob):
            return self._fail(sequence, sequence.failure or NO_TOKEN)
        try:
            step = self._extend(sequence, outcome.token_id, outcome)
        except Exception as error:
            logger.exception("Request %s failed", sequence.request_id)
            return self._fail(sequence, str(error))
        return None if step is None else (sequence.request_id, step)

    def _extend(self, sequence: Sequence, token_id: int, outcome: Outcome) -> GenerationStep | None:
        """None while nothing that can be told is final."""
        sequence.token_ids.append(token_id)
        tokens = sequence.stream.push(token_id, outcome.log_prob, self._texts.top_tokens(outcome.top_tokens))
        reason = _finish_reason(sequence)
        prefill = self._texts.prefill(sequence)
        prompt_logits = take_prompt_logits(sequence)
        sequence.started = True
        if reason is not None:
            tokens += sequence.stream.finish()
            self._end(sequence)
        if not tokens and reason is None and prefill is None and prompt_logits is None:
            return None
        generation_logits = take_generation_logits(sequence, len(tokens))
        return GenerationStep(tokens, reason, sequence.index, prefill, prompt_logits, generation_logits)

    def _verify(self, checks: list[Check]) -> list[tuple[str, Result]]:
        try:
            verify(checks, self._sampler, self._take)
        except Exception as error:
            logger.exception("Checking the drafts of %d requests failed", len(checks))
            failed = self._fail_all([check.sequence for check in checks], str(error))
            return [result for check in checks for result in merged(check.results)] + failed
        return [result for check in checks for result in merged(check.results)]

    def _search(self, search: BeamSearch, logits: torch.Tensor) -> list[tuple[str, Result]]:
        """logits: [beams, vocabulary]."""
        beams = search.beams
        if not beams[0].started:
            search.prefill, search.prompt_logits = self._texts.prefill(beams[0]), take_prompt_logits(beams[0])
            beams[0].started = True
        log_probs = logits.float().log_softmax(-1)
        try:
            count = beams[0].parameters.num_top_tokens
            top_tokens = read_likeliest(logits, [count] * len(beams)) if count else None
            goes_on = search.advance(log_probs, process(log_probs, beams), top_tokens)
            steps = [] if goes_on else search.steps()
        except Exception as error:
            logger.exception("Request %s failed", beams[0].request_id)
            return [self._fail(beams[0], str(error))]
        if goes_on:
            self._scheduler.replace(beams, search.beams)
        else:
            self.abort(beams[0].request_id)
        return [(beams[0].request_id, step) for step in steps]

    def _fail(self, sequence: Sequence, reason: str) -> tuple[str, Result]:
        self.abort(sequence.request_id)
        return sequence.request_id, GenerationFailed(f"The generation failed: {reason}")

    def _fail_all(self, sequences: Iterable[Sequence], reason: str) -> list[tuple[str, Result]]:
        """The end of each of their requests, once."""
        requests = {sequence.request_id: sequence for sequence in sequences}
        return [self._fail(sequence, reason) for name, sequence in requests.items() if name in self._sequences]

    def _check(self, request: EngineRequest, virtual_tokens: int) -> None:
        length = len(request.prompt_ids)
        if not length:
            raise InvalidParameter("the prompt is empty: it must have at least one token")
        if length >= self.max_length:
            raise ContextLengthExceeded(
                f"the prompt has {length} tokens, but the context holds {self.max_length}, those generated included"
            )
        known = self.vocabulary + virtual_tokens
        if max(request.prompt_ids) >= known or min(request.prompt_ids) < 0:
            raise InvalidParameter(f"the prompt has token ids outside the vocabulary of {known}")
        if request.request_id in self._sequences:
            raise InvalidParameter(f"request id {request.request_id!r} is taken")
        check_parameters(request.parameters, self.vocabulary)


def _finish_reason(sequence: Sequence) -> FinishReason | None:
    parameters = sequence.parameters
    # A guided text is whole at its end, and has nothing to go on with.
    ignore_end = parameters.ignore_end and parameters.guide is None
    if sequence.token_ids[-1] in sequence.end_ids and not ignore_end:
        return "eos_token"
    if sequence.stream.stopped:
        return "stop_sequence"
    return "length" if len(sequence.token_ids) >= sequence.end else None


def choose_runner(model: PreTrainedModel, max_length: int) -> ModelRunner:
    try:
        return PagedRunner(model, max_length)
    except UnsupportedAttention as reason:
        name = type(model).__name__
        logger.warning("%s runs each sequence by itself, which is slower with many: %s", name, reason)
        return RowRunner(model)
