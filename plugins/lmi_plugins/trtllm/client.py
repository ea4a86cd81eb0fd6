"""The server's side of the trtllm backend: tensors to its worker, and back."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress

from lmi_core.errors import BackendUnhealthy, LmiError, RequestAborted
from lmi_core.generation.tensors import LastResponse, Tensor
from lmi_core.workers.heartbeat import HEARTBEAT_TIMEOUT
from lmi_core.workers.isolation import Place
from lmi_core.workers.messages import PING, Alive, encode
from lmi_core.workers.resumption import EngineLost, Resumption
from lmi_core.workers.supervisor import LOADING_TIMEOUT
from lmi_core.workers.worker import Worker
from lmi_plugins.torch_engine.client.engine_worker import EngineWorker
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.trtllm.protocol import Infer, Load, Loaded, ResponseMessage, Responses, Stop, decode_from_worker
from lmi_plugins.trtllm.replay import Replay
from lmi_plugins.trtllm.requests.limits import RequestLimits

WORKER_TARGET = "lmi_plugins.trtllm.service:run"
STOPPED = "the request was stopped"


class Stream:
    """The unread responses of a request in the worker, and its place there."""

    def __init__(self, place: Place) -> None:
        self.responses: asyncio.Queue[ResponseMessage | LmiError] = asyncio.Queue()
        self._place = place

    def end(self, last: ResponseMessage | LmiError) -> None:
        """Add what comes last, and give up the place."""
        self.responses.put_nowait(last)
        self._place.leave()


class ManagerClient:
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
        """Create a client that is yet to be started. `resume`: requests are run again in the next worker."""
        self._options = options
        self._limits = limits
        self.worker = EngineWorker(
            WORKER_TARGET,
            self._greet,
            self._deliver,
            self._fail_all,
            retry_threshold,
            PING,
            heartbeat_timeout,
            loading_timeout,
        )
        self._resumption = Resumption(self.worker.available, enabled=resume)
        self._ids = itertools.count()
        self._running: dict[int, bool] = {}  # whether each request is stopped
        self._streams: dict[int, Stream] = {}  # of the requests in the worker

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
            responses = self._resumption.stream(lambda place: replay.rest(self._run(infer, place)), replay.note)
            async with aclosing(responses):
                async for response in responses:
                    if isinstance(response, LastResponse):
                        self._running.pop(request_id, None)
                    yield response
        finally:
            self._running.pop(request_id, None)

    async def _run(self, infer: Infer, place: Place) -> AsyncGenerator[Mapping[str, Tensor], None]:
        """Yield the responses that the worker has for a request."""
        request_id = infer.request_id
        if self._running.get(request_id):
            raise RequestAborted(STOPPED)
        self.worker.send(encode(infer))
        stream = self._streams[request_id] = Stream(place)
        try:
            is_final = False
            while not is_final:
                response = await stream.responses.get()
                if isinstance(response, LmiError):
                    raise response
                is_final = response.is_final
                if response.failure is not None:
                    raise response.failure.error
                yield LastResponse(response.tensors) if is_final else response.tensors
        finally:
            if self._streams.pop(request_id, None) is not None:
                with suppress(BackendUnhealthy):
                    self.worker.send(encode(Stop(request_id)))

    def stop(self, request_id: int) -> None:
        """Stop a request; whoever waits for its responses gets RequestAborted."""
        if request_id in self._running:  # maybe between two workers
            self._running[request_id] = True
        stream = self._streams.pop(request_id, None)
        if stream is not None:
            stream.end(RequestAborted(STOPPED))
            with suppress(BackendUnhealthy):
                self.worker.send(encode(Stop(request_id)))

    async def _greet(self, worker: Worker) -> None:
        answer = await worker.load(encode(Load(self._options, self._limits)), decode_from_worker)
        assert isinstance(answer, Loaded), answer
        self.loaded = answer

    def _deliver(self, data: bytes) -> None:
        message = decode_from_worker(data)
        if isinstance(message, Alive):
            return
        assert isinstance(message, Responses), message
        if any(each.failure is None for each in message.responses):  # a worker whose every step fails has not worked
            self.worker.restarts.worked()
        lost = {each.request_id: each.failure for each in message.responses if each.failure and each.failure.of_step}
        for response in message.responses:
            stream = self._streams.get(response.request_id)
            if stream is None:  # it was stopped meanwhile
                continue
            if not response.is_final:
                stream.responses.put_nowait(response)
                continue
            del self._streams[response.request_id]  # nothing of it is left in the worker
            failure = lost.get(response.request_id)
            stream.end(response if failure is None else EngineLost(failure.message, alone=len(lost) == 1))

    def _fail_all(self, why: str) -> None:
        streams, self._streams = self._streams, {}
        self._resumption.engine_died()
        for stream in streams.values():
            stream.end(EngineLost(f"the request was lost: {why}", alone=len(streams) == 1))
