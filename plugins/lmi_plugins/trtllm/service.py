"""The worker's side of the trtllm backend: a GptManager whose callbacks read and write messages."""

import logging
import threading
from collections import deque

from lmi_core.errors import LmiError
from lmi_core.generation.tensors import Tensor
from lmi_core.workers.channel import Channel
from lmi_core.workers.messages import ALIVE, LoadFailed, Ping, encode
from lmi_plugins.torch_engine.messages.protocol import Failure
from lmi_plugins.torch_engine.worker.pulse import Pulse
from lmi_plugins.trtllm.gpt_manager import GptManager, Tensors
from lmi_plugins.trtllm.protocol import Infer, Load, Loaded, ResponseMessage, Responses, Stop, decode_to_worker
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest

logger = logging.getLogger(__name__)


def run(channel: Channel) -> None:
    """Load the model in the first message, then serve forever: the worker's `target`."""
    first = channel.begin(decode_to_worker)
    assert isinstance(first, Load), first
    callbacks = Callbacks(channel, first.options.max_batch_size)
    try:
        manager = GptManager(
            first.options,
            callbacks.get_inference_requests,
            callbacks.send_response,
            callbacks.poll_stop_signals,
            limits=first.limits,
        )
    except Exception as error:  # not enough device memory, an error in the model's own code, and others
        logger.debug("the model could not be loaded", exc_info=True)
        channel.send(encode(LoadFailed.because_of(error, first.options.model)))
        return
    engine = manager.engine
    channel.send(
        encode(Loaded(engine.limits.max_length, engine.limits.vocabulary, sorted(engine.limits.eos_token_ids)))
    )
    engine.parts.runner.progress = Pulse(lambda: channel.send(ALIVE)).beat
    callbacks.loaded.set()
    manager.join()


class Callbacks:
    """The callbacks of the manager; they use the channel in the manager's thread."""

    def __init__(self, channel: Channel, max_batch_size: int) -> None:
        self._channel = channel
        self._max_batch_size = max_batch_size
        self._waiting: deque[InferenceRequest] = deque()
        self._stopped: set[int] = set()
        self._responses: list[ResponseMessage] = []  # of the current iteration
        self.loaded = threading.Event()  # has been sent, so the channel is free

    def get_inference_requests(self, room: int) -> list[InferenceRequest]:
        """Return requests for the manager's free rows; wait for one if it is idle."""
        self.loaded.wait()
        self._send()
        self._read(wait=room == self._max_batch_size and not self._waiting)
        return [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]

    def send_response(self, request_id: int, tensors: Tensors, is_final: bool, error: str) -> None:
        failure = Failure(str(request_id), getattr(error, "kind", "internal"), str(error)) if error else None
        written = {name: Tensor.from_array(array) for name, array in tensors.items()}
        self._responses.append(ResponseMessage(request_id, written, is_final, failure))

    def poll_stop_signals(self) -> set[int]:
        self._send()
        self._read(wait=False)
        stopped, self._stopped = self._stopped, set()
        return stopped

    def _send(self) -> None:
        if self._responses:
            self._channel.send(encode(Responses(self._responses)))
            self._responses = []

    def _read(self, wait: bool) -> None:
        message = self._channel.receive() if wait else self._channel.pending()
        while message is not None:
            self._handle(message)
            message = self._channel.pending()
        self._send()

    def _handle(self, message: bytes) -> None:
        match decode_to_worker(message):
            case Infer(request_id, tensors, bad_texts, logit_bias, num_top_tokens):
                try:
                    request = InferenceRequest(
                        request_id, tensors, bad_texts, logit_bias=logit_bias, num_top_tokens=num_top_tokens
                    )
                    self._waiting.append(request)
                except LmiError as error:
                    failure = Failure(str(request_id), error.kind, error.message)
                    self._responses.append(ResponseMessage(request_id, {}, True, failure))
            case Ping():
                self._channel.send(ALIVE)
            case Stop(request_id):
                self._stopped.add(request_id)
                self._waiting = deque(each for each in self._waiting if each.request_id != request_id)
