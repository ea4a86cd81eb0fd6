"""The server's side of the trtllm backend: tensors to its worker, and back."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress

from lmi_core.engines.worker import Worker
from lmi_core.errors import BackendUnhealthy, ConfigurationError, GenerationFailed, LmiError, RequestAborted
from lmi_core.tensors import LastResponse, Tensor
from lmi_plugins.torch_engine.worker.engine_worker import EngineWorker
from lmi_plugins.torch_engine.worker.messages import EngineOptions
from lmi_plugins.trtllm.protocol import (
    Infer,
    Load,
    Loaded,
    LoadFailed,
    ResponseMessage,
    Responses,
    Stop,
    decode_from_worker,
    encode,
)
from lmi_plugins.trtllm.requests.limits import RequestLimits

WORKER_TARGET = "lmi_plugins.trtllm.service:run"


class ManagerClient:
    """A GptManager in a worker process. When it dies, what it worked on fails and a new one is started."""

    loaded: Loaded  # what the manager told of its model, from `start` on

    def __init__(self, options: EngineOptions, limits: RequestLimits, retry_threshold: int) -> None:
        self._options = options
        self._limits = limits
        self.worker = EngineWorker(WORKER_TARGET, self._greet, self._deliver, self._fail_all, retry_threshold)
        self._ids = itertools.count()
        self._streams: dict[int, asyncio.Queue[ResponseMessage | LmiError]] = {}

    @property
    def in_flight(self) -> int:
        return len(self._streams)

    def new_id(self) -> int:
        return next(self._ids)

    async def infer(
        self, request_id: int, tensors: Mapping[str, Tensor], bad_texts: Sequence[str] = ()
    ) -> AsyncGenerator[Mapping[str, Tensor], None]:
        """Yield responses until the last; raise LmiError if the request fails. Closing it stops the request."""
        self.worker.send(encode(Infer(request_id, dict(tensors), list(bad_texts))))
        responses = self._streams[request_id] = asyncio.Queue()
        try:
            is_final = False
            while not is_final:
                response = await responses.get()
                if isinstance(response, LmiError):
                    raise response
                is_final = response.is_final
                if is_final:
                    self._streams.pop(request_id, None)
                if response.failure is not None:
                    raise response.failure.error
                yield LastResponse(response.tensors) if is_final else response.tensors
        finally:
            if self._streams.pop(request_id, None) is not None:
                with suppress(BackendUnhealthy):
                    self.worker.send(encode(Stop(request_id)))

    def stop(self, request_id: int) -> None:
        """Stop a request; whoever waits for its responses gets RequestAborted."""
        stream = self._streams.pop(request_id, None)
        if stream is not None:
            stream.put_nowait(RequestAborted("the request was stopped"))
            with suppress(BackendUnhealthy):
                self.worker.send(encode(Stop(request_id)))

    async def _greet(self, worker: Worker) -> None:
        await worker.receive()  # Started
        worker.send(encode(Load(self._options, self._limits)))
        answer = decode_from_worker(await worker.receive())
        if isinstance(answer, LoadFailed):
            raise ConfigurationError(answer.message)
        assert isinstance(answer, Loaded), answer
        self.loaded = answer

    def _deliver(self, data: bytes) -> None:
        message = decode_from_worker(data)
        assert isinstance(message, Responses), message
        self.worker.restarts.worked()
        for response in message.responses:
            stream = self._streams.get(response.request_id)
            if stream is not None:  # otherwise it was stopped meanwhile
                stream.put_nowait(response)

    def _fail_all(self, why: str) -> None:
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.put_nowait(GenerationFailed(f"the request was lost: {why}"))
