"""The server's side of the trtllm backend: tensors to its worker, and back."""

import itertools
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial

from lmi_core.errors import RequestAborted
from lmi_core.generation.tensors import LastResponse, Tensor
from lmi_core.workers.client import WorkerClient
from lmi_core.workers.heartbeat import HEARTBEAT_TIMEOUT
from lmi_core.workers.isolation import Presence
from lmi_core.workers.item_queue import ItemQueue
from lmi_core.workers.local_process import LocalProcess
from lmi_core.workers.resumption import EngineLost
from lmi_core.workers.supervisor import LOADING_TIMEOUT
from lmi_plugins.torch_engine.client.early import ENVIRONMENT
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.trtllm.protocol import (
    FromWorker,
    Infer,
    Load,
    Loaded,
    ResponseMessage,
    Responses,
    Stop,
    decode_from_worker,
)
from lmi_plugins.trtllm.replay import Replay
from lmi_plugins.trtllm.requests.limits import RequestLimits

WORKER_TARGET = "lmi_plugins.trtllm.service:run"
STOPPED = "the request was stopped"


class ManagerClient(WorkerClient[FromWorker, int, ItemQueue[ResponseMessage]]):
    """A GptManager in a worker process. When it dies, a new one is started, which runs its requests again."""

    loaded: Loaded  # what the manager told of its model, from `start` on

    def __init__(
        self,
        options: EngineOptions,
        limits: RequestLimits,
        retry_threshold: int,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
        loading_timeout: float = LOADING_TIMEOUT,
        *,
        resume: bool = False,
    ) -> None:
        super().__init__(
            partial(LocalProcess, WORKER_TARGET, ENVIRONMENT),
            decode_from_worker,
            retry_threshold,
            heartbeat_timeout,
            loading_timeout,
            resume=resume,
        )
        self._options = options
        self._limits = limits
        self._ids = itertools.count()
        self._running: dict[int, bool] = {}  # whether each request is stopped

    @property
    def in_flight(self) -> int:
        return len(self._running)

    def new_id(self) -> int:
        return next(self._ids)

    async def infer(
        self,
        request_id: int,
        tensors: Mapping[str, Tensor],
        bad_texts: Sequence[str] = (),
        *,
        logit_bias: Mapping[int, float] | None = None,
        num_top_tokens: int = 0,
    ) -> AsyncGenerator[Mapping[str, Tensor], None]:
        """Yield responses until the last; raise LmiError if the request fails. Closing it stops the request."""
        infer = Infer(request_id, dict(tensors), list(bad_texts), dict(logit_bias or {}), num_top_tokens)
        replay = Replay()
        self._running[request_id] = False
        try:
            responses = self._resumption.stream(lambda presence: replay.rest(self._run(infer, presence)), replay.note)
            async with aclosing(responses):
                async for response in responses:
                    if isinstance(response, LastResponse):
                        self._running.pop(request_id, None)
                    yield response
        finally:
            self._running.pop(request_id, None)

    async def _run(self, infer: Infer, presence: Presence) -> AsyncGenerator[Mapping[str, Tensor], None]:
        """Yield the responses that the worker has for a request."""
        request_id = infer.request_id
        if self._running.get(request_id):
            raise RequestAborted(STOPPED)
        responses = ItemQueue[ResponseMessage](on_complete=presence.leave)
        with self._in_worker(request_id, responses, infer, Stop(request_id)):
            is_final = False
            while not is_final:
                response = await responses.get()
                is_final = response.is_final
                yield LastResponse(response.tensors) if is_final else response.tensors

    def stop_request(self, request_id: int) -> None:
        """Stop a request; its responses end with RequestAborted."""
        if request_id in self._running:  # maybe between two workers
            self._running[request_id] = True
        queue = self._end(request_id, Stop(request_id))
        if queue is not None:
            queue.fail(RequestAborted(STOPPED))

    async def _what_to_load(self) -> Load:
        return Load(self._options, self._limits)

    def _loaded(self, answer: FromWorker) -> None:
        assert isinstance(answer, Loaded), answer
        self.loaded = answer

    def _deliver(self, message: FromWorker) -> None:
        assert isinstance(message, Responses), message
        if any(each.failure is None for each in message.responses):  # a worker whose every step fails has not worked
            self.restarts.worked()
        lost = {each.request_id for each in message.responses if each.failure and each.failure.of_step}
        for response in message.responses:
            queue = self._requests.get(response.request_id)
            failure = response.failure
            if queue is None:  # it was stopped meanwhile
                continue
            if failure is None:
                queue.put(response, final=response.is_final)
            elif failure.of_step:
                queue.fail(EngineLost(failure.message, len(lost)))
            else:
                queue.fail(failure.error)
