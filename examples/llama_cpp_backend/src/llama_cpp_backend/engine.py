"""Continuous batching by llama.cpp's own API: one thread, which decodes one batch for all sequences at each step."""

import asyncio
import os
import queue
import threading
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import llama_cpp
import numpy as np

from llama_cpp_backend.sampling import Logits, Sampler, log_probs_of
from llama_cpp_backend.vocabulary import Vocabulary
from lmi import (
    BackendUnhealthy,
    ConfigurationError,
    EngineFigures,
    ExtendedParameters,
    FinishReason,
    GenerationFailed,
    GenerationStep,
    LmiError,
    Token,
    TokenStream,
    ValidRequest,
)

if TYPE_CHECKING:
    from llama_cpp_backend import LlamaCppProperties

ENDED = "llama.cpp's thread has ended; the server's log has the reason"
Steps = asyncio.Queue[GenerationStep | LmiError]


@dataclass(eq=False, slots=True)
class Sequence:
    """One answer while it is generated."""

    request: ValidRequest
    parameters: ExtendedParameters
    index: int  # in its request
    steps: Steps
    sampler: Sampler
    stream: TokenStream
    prompt_stream: TokenStream
    pending: list[int]  # tokens to decode next: the rest of the prompt, then the latest token
    arrived: float = field(default_factory=perf_counter)
    slot: int = -1  # llama.cpp's number of the sequence in its KV cache; -1: it waits
    position: int = 0
    generated: int = 0
    queue_time: float | None = None
    prefill: list[Token] | None = None

    @property
    def reads_prompt(self) -> bool:
        """Whether the logits of the tokens that are decoded now are read."""
        return self.parameters.wants_prefill and self.index == 0 and self.generated == 0

    @property
    def length(self) -> int:
        """The number of tokens that the sequence may need in the KV cache."""
        return len(self.request.prompt_ids) + self.parameters.max_new_tokens


class Engine:
    """A model in llama.cpp. Only its own thread decodes; other threads leave it messages."""

    def __init__(self, file: Path, options: "LlamaCppProperties", loop: asyncio.AbstractEventLoop) -> None:
        llama_cpp.llama_backend_init()
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = options.n_gpu_layers
        model = llama_cpp.llama_model_load_from_file(str(file).encode(), model_params)
        if not model:
            raise ConfigurationError(f"llama.cpp cannot load {file}: its own log has the reason")
        self.vocabulary = Vocabulary(model)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_seq_max = options.n_ctx, options.max_rolling_batch_size
        params.n_batch = self._n_batch = max(options.n_batch, options.max_rolling_batch_size)
        params.kv_unified = True  # the sequences share n_ctx tokens, however long each is
        params.n_threads = params.n_threads_batch = options.n_threads or len(os.sched_getaffinity(0))
        self.context = llama_cpp.llama_init_from_model(model, params)
        if not self.context:
            raise ConfigurationError(f"llama.cpp cannot create a context of {options.n_ctx} tokens for {file}")
        self._n_ctx = llama_cpp.llama_n_ctx(self.context)
        self.max_length = min(self._n_ctx, llama_cpp.llama_model_n_ctx_train(model))
        self._memory = llama_cpp.llama_get_memory(self.context)
        self._batch = llama_cpp.llama_batch_init(self._n_batch, 0, 1)
        self._slots = list(range(options.max_rolling_batch_size))
        self._waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._free_length = self._n_ctx
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()  # functions to call; None: stop
        self._ended, self._end = False, threading.Lock()
        self._ready: list[tuple[Steps, GenerationStep | LmiError]] = []  # to be sent after the step
        self._loop = loop
        self._thread = threading.Thread(target=self._run, name="llama.cpp", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return not self._ended

    @property
    def figures(self) -> EngineFigures:
        used = 1 - self._free_length / self._n_ctx
        return EngineFigures(running=len(self.running), waiting=len(self._waiting), cache_usage=used)

    def add(self, sequences: list[Sequence]) -> None:
        with self._end:
            if self._ended:
                raise BackendUnhealthy(ENDED)
            self._messages.put(partial(self._waiting.extend, sequences))

    def remove(self, sequences: list[Sequence]) -> None:
        """End those of the sequences that have not ended."""
        self._messages.put(partial(self._remove, sequences))

    def stop(self) -> None:
        self._messages.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._read_messages():
                self._admit()
                self.step()
                self._send()
        finally:
            with self._end:
                self._ended = True
            while not self._messages.empty():
                if message := self._messages.get():
                    message()
            self._fail([*self.running, *self._waiting], GenerationFailed(ENDED))
            self._send()
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_free(self.context)

    def _read_messages(self) -> bool:
        """Act on all messages, waiting for one if there is nothing to do. Return False at the end."""
        idle = not (self.running or self._waiting)
        while idle or not self._messages.empty():
            message = self._messages.get()
            if message is None:
                return False
            message()
            idle = False
        return True

    def _admit(self) -> None:
        """Give slots to waiting sequences, in order, if the KV cache has room for the whole of each."""
        while self._waiting and self._slots and self._waiting[0].length <= self._free_length:
            sequence = self._waiting.popleft()
            sequence.slot = self._slots.pop()
            sequence.queue_time = perf_counter() - sequence.arrived
            self._free_length -= sequence.length
            self.running.append(sequence)

    def step(self) -> None:
        """Decode the next tokens of all sequences, as many as fit: first of answers, then of prompts."""
        self._batch.n_tokens = 0
        decoded: list[tuple[Sequence, int, list[int]]] = []  # with the place in the batch
        for sequence in sorted(self.running, key=lambda each: len(each.pending) > 1):
            if ids := sequence.pending[: self._n_batch - self._batch.n_tokens]:
                decoded.append((sequence, self._batch.n_tokens, ids))
                self._put(sequence, ids)
        if not decoded:
            return
        if code := llama_cpp.llama_decode(self.context, self._batch):
            error = GenerationFailed(f"llama.cpp cannot decode the batch: llama_decode returned {code}")
            return self._fail([sequence for sequence, *_ in decoded], error)
        for sequence, place, ids in decoded:
            if sequence.reads_prompt:
                self._add_prefill(sequence, place, ids)
            sequence.position += len(ids)
            sequence.pending = sequence.pending[len(ids) :]
            if not sequence.pending:
                self._extend(sequence, self._logits(place + len(ids) - 1))

    def _put(self, sequence: Sequence, ids: list[int]) -> None:
        batch, place, every = self._batch, self._batch.n_tokens, sequence.reads_prompt
        for offset, token_id in enumerate(ids):
            batch.token[place + offset] = token_id
            batch.pos[place + offset] = sequence.position + offset
            batch.n_seq_id[place + offset] = 1
            batch.seq_id[place + offset][0] = sequence.slot
            batch.logits[place + offset] = every
        batch.logits[place + len(ids) - 1] = every or len(ids) == len(sequence.pending)
        batch.n_tokens += len(ids)

    def _logits(self, place: int) -> Logits:
        found = llama_cpp.llama_get_logits_ith(self.context, place)
        return np.ctypeslib.as_array(found, (self.vocabulary.vocabulary_size,))

    def _extend(self, sequence: Sequence, logits: Logits) -> None:
        """Add the next token to a sequence."""
        try:
            token_id = sequence.sampler.choose(logits)
        except LmiError as error:
            return self._fail([sequence], error)
        parameters, stream, request = sequence.parameters, sequence.stream, sequence.request
        sequence.generated += 1
        found: tuple[Any, ...] = ()
        if request.log_probs or request.ranks or parameters.num_top_tokens:
            found = log_probs_of(self.vocabulary, logits, token_id, parameters.num_top_tokens)
        tokens = stream.push(token_id, *found)
        reason: FinishReason | None = None
        if stream.stopped:
            reason = "stop_sequence"
        elif token_id in self.vocabulary.end_ids and not parameters.ignore_eos_token:
            reason = "eos_token"
        elif sequence.generated == parameters.max_new_tokens:
            reason = "length"
        if reason is not None:
            tokens += stream.finish()
            self._free(sequence)
        step = GenerationStep(tokens, reason, sequence.index, sequence.prefill, stop_sequence=stream.stop_sequence)
        step.queue_time, sequence.queue_time, sequence.prefill = sequence.queue_time, None, None
        sequence.pending = [token_id]
        self._ready.append((sequence.steps, step))

    def _add_prefill(self, sequence: Sequence, place: int, ids: list[int]) -> None:
        """Add the tokens of the prompt that these logits predict; the first has no log probability."""
        count, prompt = sequence.parameters.num_prompt_top_tokens, sequence.request.prompt_ids
        size = self.vocabulary.vocabulary_size if count < 0 else count
        if sequence.prefill is None:
            sequence.prefill = sequence.prompt_stream.push(prompt[0])
        for offset, token_id in enumerate(prompt[sequence.position + 1 :][: len(ids)]):
            found = log_probs_of(self.vocabulary, self._logits(place + offset), token_id, size)
            sequence.prefill += sequence.prompt_stream.push(token_id, *found)

    def _fail(self, sequences: list[Sequence], error: LmiError) -> None:
        for sequence in sequences:
            self._free(sequence)
            self._ready.append((sequence.steps, error))

    def _remove(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            self._free(sequence)

    def _free(self, sequence: Sequence) -> None:
        """Take a sequence out of the engine, and its tokens out of the KV cache, if it is there."""
        if sequence in self._waiting:
            self._waiting.remove(sequence)
        if sequence in self.running:
            self.running.remove(sequence)
            llama_cpp.llama_memory_seq_rm(self._memory, sequence.slot, -1, -1)
            self._slots.append(sequence.slot)
            self._free_length += sequence.length

    def _send(self) -> None:
        """Hand the results over to the event loop, all at once."""
        ready, self._ready = self._ready, []
        if ready:
            self._loop.call_soon_threadsafe(_put_all, ready)


def _put_all(ready: list[tuple[Steps, GenerationStep | LmiError]]) -> None:
    for steps, item in ready:
        steps.put_nowait(item)
