"""The inputs that wait for their vectors."""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple

from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput, EmbeddingJob


class WaitingInput(NamedTuple):
    """An input, and the index that it has in its request."""

    request_id: str
    place: int
    input: EmbeddingInput


class WaitingInputs:
    """The inputs of all requests, which take turns: one of many inputs does not hold up those that come after it."""

    def __init__(self) -> None:
        self._by_request: OrderedDict[str, deque[WaitingInput]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._by_request.values()))

    def __bool__(self) -> bool:
        return bool(self._by_request)

    def add(self, job: EmbeddingJob) -> None:
        if job.inputs:
            self._by_request[job.request_id] = deque(
                WaitingInput(job.request_id, index, each) for index, each in enumerate(job.inputs)
            )

    def drop(self, request_ids: Iterable[str]) -> None:
        """Forget what is left of requests; unknown ones are ignored."""
        for request_id in request_ids:
            self._by_request.pop(request_id, None)

    def take(self, max_tokens: int) -> list[WaitingInput]:
        """Take out inputs of at most `max_tokens` together, or one that alone has more."""
        taken: list[WaitingInput] = []
        tokens = 0
        while self._by_request:
            request_id, inputs = next(iter(self._by_request.items()))
            tokens += len(inputs[0].input.prompt_ids)
            if taken and tokens > max_tokens:
                break
            taken.append(inputs.popleft())
            if inputs:
                self._by_request.move_to_end(request_id)
            else:
                del self._by_request[request_id]
        return taken
