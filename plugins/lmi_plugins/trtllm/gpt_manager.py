"""TensorRT-LLM's batch manager, in Python: requests come and go by callbacks while others generate."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Items
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy

from lmi_core.errors import GenerationFailed, InvalidParameter, LmiError
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.sequences.step_batch import Chunk
from lmi_plugins.trtllm.requests.adapters import CachedAdapters, RequestAdapter, adapter_errors
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest
from lmi_plugins.trtllm.requests.limits import NO_LIMITS, RequestLimits
from lmi_plugins.trtllm.requests.model_checks import check_model
from lmi_plugins.trtllm.requests.translation import TENSOR_NAMES, engine_request
from lmi_plugins.trtllm.responses import Answer, Response

logger = logging.getLogger(__name__)

IDLE_SECONDS = 0.01  # between checks for requests while the manager is idle, unless it is woken

Tensors = Mapping[str, "numpy.ndarray[Any, Any]"]
GetInferenceRequests = Callable[[int], Iterable[InferenceRequest]]  # returns at most this many
SendResponse = Callable[[int, Tensors, bool, str], None]  # request id, tensors, whether it is final, error
PollStopSignals = Callable[[], Iterable[int]]  # request ids
ReturnStatistics = Callable[[str], None]  # a JSON object


class GptManager:
    """A batch manager that owns a model, and a thread that calls every callback.

    The model is in this process, so tensors are not copied.
    """

    def __init__(
        self,
        model: str | Path | EngineOptions,
        get_inference_requests: GetInferenceRequests,
        send_response: SendResponse,
        poll_stop_signals: PollStopSignals | None = None,
        return_statistics: ReturnStatistics | None = None,
        limits: RequestLimits = NO_LIMITS,
    ) -> None:
        """Load a model: a directory, an id on the hub, or one with options. Raise ConfigurationError on failure."""
        options = model if isinstance(model, EngineOptions) else EngineOptions(str(model))
        tokenizer = HuggingFaceTokenizer.load(options.model, options.revision, options.trust_remote_code)
        self.engine = Engine(options, tokenizer)
        self._get_inference_requests = get_inference_requests
        self._send_response = send_response
        self._poll_stop_signals = poll_stop_signals
        self._return_statistics = return_statistics
        self._limits = limits
        self._adapters = CachedAdapters()
        self._active: dict[int, Answer] = {}  # by request
        self._iteration = 0
        self._failure: BaseException | None = None
        self._shut_down = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpt-manager", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()

    def wake(self) -> None:
        """Fetch new requests immediately; otherwise, this takes a few milliseconds."""
        self._woken.set()

    def shutdown(self) -> None:
        """End the thread; requests in flight get an error.

        If an exception of a callback or the device has ended the thread, raise that exception.
        """
        self._shut_down.set()
        self.wake()
        if threading.current_thread() is not self._thread:
            self.join()

    def join(self) -> None:
        """Wait until the thread ends.

        If an exception of a callback or the device has ended it, raise that exception.
        """
        self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        try:
            while not self._shut_down.is_set():
                self._iterate()
        except BaseException as failure:
            logger.exception("The manager failed")
            self._failure = failure
        reason = "the manager was shut down" if self._failure is None else f"the manager ended: {self._failure}"
        try:
            for request_id in list(self._active):
                self._fail(request_id, GenerationFailed(f"the request was lost: {reason}"))
        except Exception as failure:
            self._failure = self._failure or failure

    def _iterate(self) -> None:
        room = self.engine.limits.max_batch_size - len(self._active)
        for request in self._get_inference_requests(room) if room else ():
            try:
                self._admit(request)
            except LmiError as error:
                self._send_response(request.request_id, {}, True, error.message)
        if not self.engine.has_work:
            self._woken.wait(IDLE_SECONDS)
            self._woken.clear()
            return
        active = len(self._active)
        for request_id, result in self.engine.step():
            if isinstance(result, LmiError):
                self._fail(int(request_id), result)
            else:
                self._respond(int(request_id), self._active[int(request_id)].add(result))
        if self._poll_stop_signals is not None:
            self._stop(self._poll_stop_signals())
        if self._return_statistics is not None:
            self._return_statistics(statistics(self.engine, self._iteration, active))
        self._iteration += 1

    def _admit(self, request: InferenceRequest) -> None:
        if request.request_id in self._active:
            raise InvalidParameter(f"`request_id` {request.request_id} is the id of a request that is still running")
        engine = self.engine
        self._limits.check(request)
        check_model(request, engine.limits.vocabulary, engine.limits.max_length)
        adapter = RequestAdapter.of(request)
        name = None if adapter is None else self._load(adapter)
        engine.add(engine_request(request, name), TENSOR_NAMES)
        self._active[request.request_id] = Answer(request, engine.limits.vocabulary)

    def _load(self, adapter: RequestAdapter) -> str:
        """Load an adapter into the engine, unless it has it, and return its name there.

        Raise InvalidParameter if it cannot be loaded.
        """
        names = [] if self.engine.runner.adapters is None else self.engine.adapters.names
        name = self._adapters.name_of(adapter, names)
        if adapter.source is not None and name not in names:
            with adapter_errors():
                self.engine.load_adapter(name, adapter.source)
        self._adapters.note(adapter, name, self.engine.adapters.names)
        return name

    def _respond(self, request_id: int, responses: Iterable[Response]) -> None:
        for response in responses:
            if response.is_final:
                del self._active[request_id]
            self._send_response(request_id, response.tensors, response.is_final, "")

    def _fail(self, request_id: int, error: LmiError) -> None:
        del self._active[request_id]
        self.engine.abort(str(request_id))
        self._send_response(request_id, {}, True, error.message)

    def _stop(self, request_ids: Iterable[int]) -> None:
        """Stop requests, and send a last response to each, with the unsent output."""
        for request_id in request_ids:
            if request_id in self._active:
                self.engine.abort(str(request_id))
                self._respond(request_id, [self._active[request_id].stop()])


def statistics(engine: Engine, iteration: int, active: int) -> str:
    """Return a JSON object about an iteration that began with `active` requests."""
    scheduled = _requests(engine.latest_chunks)
    context = [chunk for chunk in engine.latest_chunks if chunk.start < chunk.sequence.prompt_length]
    in_context = _requests(context)
    return json.dumps(
        {
            "Timestamp": time.strftime("%m-%d-%Y %H:%M:%S"),
            "Iteration Counter": iteration,
            "Active Request Count": active,
            "Max Request Count": engine.limits.max_batch_size,
            "Max KV cache blocks": engine.pool.size,
            "Free KV cache blocks": engine.pool.free,
            "Used KV cache blocks": engine.pool.size - engine.pool.free,
            "Tokens per KV cache block": engine.pool.block_size,
            "Scheduled Requests": len(scheduled),
            "Context Requests": len(in_context),
            "Generation Requests": len(scheduled - in_context),
            "Total Context Tokens": sum(min(each.end, each.sequence.prompt_length) - each.start for each in context),
        }
    )


def _requests(chunks: Items[Chunk]) -> set[str]:
    return {chunk.sequence.request_id for chunk in chunks}
