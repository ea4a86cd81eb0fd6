"""The server's side of the trtllm backend: tensors to its workers, and back."""

import itertools
from collections.abc import AsyncGenerator, Callable, Container, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from math import prod

from lmi_core.errors import GenerationFailed, RequestAborted
from lmi_core.generation.tensors import LastResponse, Tensor
from lmi_core.remote.nodes.sending import NodeFiles
from lmi_core.workers.client import WorkerClient
from lmi_core.workers.conversation import Conversation
from lmi_core.workers.endpoint import Endpoint
from lmi_core.workers.heartbeat import HEARTBEAT_TIMEOUT
from lmi_core.workers.isolation import Presence, Work
from lmi_core.workers.item_queue import ItemQueue
from lmi_core.workers.placement import ANYWHERE, Placement
from lmi_core.workers.replicas import Replicas
from lmi_core.workers.resumption import EngineLost, Resumption
from lmi_core.workers.supervisor import LOADING_TIMEOUT
from lmi_plugins.torch_engine.client.placing import endpoint, placed, with_files
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
from lmi_plugins.trtllm.requests.limits import RequestLimits

WORKER_TARGET = "lmi_plugins.trtllm.service:run"
STOPPED = "the request was stopped"

Tensors = Mapping[str, Tensor]


class Replay:
    """The responses already given to one request.

    Every request has a seed, so that repeated responses are the same: one for each token, or one for all.
    """

    def __init__(self) -> None:
        self._given: list[bytes] = []  # the ids of each response that were sent

    def note(self, response: Tensors) -> int:
        """Count a response, and return the total."""
        self._given.append(response["output_ids"].data)
        return len(self._given)

    async def rest(self, responses: AsyncGenerator[Tensors, None]) -> AsyncGenerator[Tensors, None]:
        """Yield the responses after those already given. Raise GenerationFailed if the repeated ones differ."""
        async with aclosing(responses):
            for expected in self._given.copy():
                if (await anext(responses))["output_ids"].data != expected:
                    raise GenerationFailed("the request was lost: when run again, it generated different tokens")
            async for response in responses:
                yield response


class ManagerWorker(WorkerClient[FromWorker, int, ItemQueue[ResponseMessage]]):
    """A GptManager in a worker process. When it dies, its requests are lost and a new one is started."""

    loaded: Loaded  # what the manager reported about its model; set by `start`

    def __init__(
        self,
        options: EngineOptions,
        limits: RequestLimits,
        retry_threshold: int,
        heartbeat_timeout: float,
        loading_timeout: float,
        stopped: Container[int],
        new_endpoint: Callable[[], Endpoint],
    ) -> None:
        """Create a client without starting it; `stopped` has the requests that must not run again."""
        super().__init__(
            new_endpoint,
            decode_from_worker,
            retry_threshold,
            heartbeat_timeout,
            loading_timeout,
        )
        self._options = options
        self._limits = limits
        self._stopped = stopped

    async def run(self, infer: Infer, presence: Presence) -> AsyncGenerator[Mapping[str, Tensor], None]:
        """Yield the worker's responses to a request."""
        request_id = infer.request_id
        if request_id in self._stopped:
            raise RequestAborted(STOPPED)
        responses = ItemQueue[ResponseMessage](on_complete=presence.leave)
        with self._in_worker(request_id, responses, infer, Stop(request_id)):
            is_final = False
            while not is_final:
                response = await responses.get()
                is_final = response.is_final
                yield LastResponse(response.tensors) if is_final else response.tensors

    def stop_request(self, request_id: int) -> None:
        """Stop a request, if it is running here; its responses end with RequestAborted."""
        queue = self._end(request_id, Stop(request_id))
        if queue is not None:
            queue.fail(RequestAborted(STOPPED))

    async def _what_to_load(self, worker: Conversation[FromWorker]) -> Load:
        return Load(await with_files(self._options, NodeFiles.of(worker), self.report), self._limits)

    def _loaded(self, answer: FromWorker) -> None:
        assert isinstance(answer, Loaded), answer
        self.loaded = answer

    def _deliver(self, message: FromWorker) -> None:
        assert isinstance(message, Responses), message
        # A worker whose every step fails does not count as working
        if any(each.failure is None for each in message.responses):
            self.restarts.worked()
        lost = {each.request_id for each in message.responses if each.failure and each.failure.of_step}
        for response in message.responses:
            queue = self._requests.get(response.request_id)
            failure = response.failure
            if queue is None:  # it was stopped in the meantime
                continue
            if failure is None:
                queue.put(response, final=response.is_final)
            elif failure.of_step:
                queue.fail(EngineLost(failure.message, len(lost)))
            else:
                queue.fail(failure.error)


class ManagerClient:
    """GptManagers in worker processes. When one dies, its requests run again in another, and a new one is started."""

    def __init__(
        self,
        options: EngineOptions,
        limits: RequestLimits,
        retry_threshold: int,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
        loading_timeout: float = LOADING_TIMEOUT,
        *,
        resume: bool = False,
        placement: Placement = ANYWHERE,
        max_idle_time: float = 60,
    ) -> None:
        """Create a client that is yet to be started; for the times, in seconds, see WorkerClient and Replicas."""
        self.placement = placement
        self._ids = itertools.count()
        self._running = set[int]()
        self._stopped = set[int]()  # running requests to be stopped

        def create(number: int) -> ManagerWorker:
            own = placed(options, number, self.placement, self.replicas.count)
            new_endpoint = partial(endpoint, WORKER_TARGET, number, self.placement)
            return ManagerWorker(
                own, limits, retry_threshold, heartbeat_timeout, loading_timeout, self._stopped, new_endpoint
            )

        self.replicas = Replicas(create, placement.replicas, options.max_batch_size, max_idle_time)
        self._resumption = Resumption(self.replicas, enabled=resume)

    @property
    def loaded(self) -> Loaded:
        """A manager's report about its model, available after the start."""
        return self.replicas.first.loaded

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
        self._running.add(request_id)
        try:
            responses = self._resumption.stream(
                lambda worker, presence: replay.rest(worker.run(infer, presence)), replay.note, _work(tensors)
            )
            async with aclosing(responses):
                async for response in responses:
                    if isinstance(response, LastResponse):
                        self._running.discard(request_id)
                    yield response
        finally:
            self._running.discard(request_id)
            self._stopped.discard(request_id)

    def stop_request(self, request_id: int) -> None:
        """Stop a request; its responses end with RequestAborted."""
        if request_id in self._running:  # it may be between two workers
            self._stopped.add(request_id)
        for worker in self.replicas.members:
            worker.stop_request(request_id)


def _work(tensors: Mapping[str, Tensor]) -> Work:
    """Return the work that a request causes in an engine; its tensors are checked later."""
    given = tensors.get("input_ids")
    return Work(rest=1 if given is None else prod(given.shape))
