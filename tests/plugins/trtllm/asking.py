"""A client of a GptManager through its callbacks, as a program would use it."""

import itertools
import json
import threading
from collections import defaultdict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.trtllm.gpt_manager import GptManager, Tensors
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest
from lmi_plugins.trtllm.requests.limits import NO_LIMITS, RequestLimits

PROMPT = [5, 6, 7]
TIMEOUT = 60.0  # seconds, where tests would otherwise wait forever


class Received(NamedTuple):
    tensors: Tensors
    is_final: bool
    error: str


class Asker:
    """A client whose `hold` keeps requests back, and whose `release` submits them together."""

    def __init__(self, directory: Path, limits: RequestLimits = NO_LIMITS, **options: Any) -> None:
        self._ids = itertools.count(1)
        self._waiting: deque[InferenceRequest] = deque()
        self._changed = threading.Condition()
        self._received: dict[int, list[Received]] = defaultdict(list)
        self._to_stop: set[int] = set()
        self._holding = False
        self.asked_for: list[int] = []  # the number of requests handed over each time
        self.statistics: list[dict[str, Any]] = []
        self.manager = GptManager(
            EngineOptions(str(directory), **options),
            self._get_inference_requests,
            self._send_response,
            self._poll_stop_signals,
            self._return_statistics,
            limits,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.manager.shutdown()

    def submit(self, prompt_ids: list[int] = PROMPT, count: int = 6, **tensors: Any) -> int:
        """Submit a request, and return its id."""
        known = {"input_ids": [prompt_ids], "request_output_len": [[count]]}
        return self.hand_over(InferenceRequest(next(self._ids), known | tensors))

    def hand_over(self, request: InferenceRequest) -> int:
        with self._changed:
            self._waiting.append(request)
        self.manager.wake()
        return request.request_id

    def hold(self) -> None:
        self._holding = True

    def release(self) -> None:
        self._holding = False
        self.manager.wake()

    def stop(self, request_id: int) -> None:
        self._to_stop.add(request_id)

    def received(self, request_id: int, count: int | None = None) -> list[Received]:
        """Wait for all responses to a request, or for the first `count`, and return them."""

        def are_there() -> bool:
            own = self._received[request_id]
            return bool(own and own[-1].is_final) if count is None else len(own) >= count

        with self._changed:
            assert self._changed.wait_for(are_there, TIMEOUT)
            return list(self._received[request_id])

    def ask(self, prompt_ids: list[int] = PROMPT, count: int = 6, **tensors: Any) -> Mapping[str, Any]:
        """Submit a request, and return its only response's tensors."""
        (response,) = self.received(self.submit(prompt_ids, count, **tensors))
        assert (response.is_final, response.error) == (True, "")
        return response.tensors

    def ids(self, prompt_ids: list[int] = PROMPT, count: int = 6, **tensors: Any) -> list[int]:
        """Submit a request, and return the generated ids of its only sequence."""
        (ids,) = self.ask(prompt_ids, count, **tensors)["output_ids"].tolist()
        return list(ids)

    def stream(self, prompt_ids: list[int] = PROMPT, count: int = 6, **tensors: Any) -> list[Tensors]:
        responses = self.received(self.submit(prompt_ids, count, streaming=[True], **tensors))
        assert [response.is_final for response in responses] == [False] * (len(responses) - 1) + [True]
        assert {response.error for response in responses} == {""}
        return [response.tensors for response in responses]

    def error(self, prompt_ids: list[int] = PROMPT, count: int = 6, **tensors: Any) -> str:
        (response,) = self.received(self.submit(prompt_ids, count, **tensors))
        assert (response.is_final, dict(response.tensors)) == (True, {})
        return response.error

    def iterations(self, prompt_ids: list[int] = PROMPT, count: int = 6, **tensors: Any) -> int:
        """Submit a request, and return the number of iterations until its answer."""
        before = len(self.statistics_so_far())
        self.received(self.submit(prompt_ids, count, **tensors))
        return len(self.statistics_so_far()) - before

    def statistics_so_far(self) -> list[dict[str, Any]]:
        """Return the statistics, including those of the iteration of the latest responses."""
        with self._changed:
            asked = len(self.asked_for)
            assert self._changed.wait_for(lambda: len(self.asked_for) > asked, TIMEOUT)
            return self.statistics

    def _get_inference_requests(self, most: int) -> list[InferenceRequest]:
        with self._changed:
            self.asked_for.append(most)
            self._changed.notify_all()
            ready = 0 if self._holding else min(most, len(self._waiting))
            return [self._waiting.popleft() for _ in range(ready)]

    def _send_response(self, request_id: int, tensors: Tensors, is_final: bool, error: str) -> None:
        with self._changed:
            self._received[request_id].append(Received(tensors, is_final, error))
            self._changed.notify_all()

    def _poll_stop_signals(self) -> set[int]:
        stopped, self._to_stop = self._to_stop, set()
        return stopped

    def _return_statistics(self, text: str) -> None:
        with self._changed:
            self.statistics.append(json.loads(text))
            self._changed.notify_all()
