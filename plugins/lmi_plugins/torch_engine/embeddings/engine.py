"""Batches of waiting texts."""

import logging
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from lmi_core.embedding_backend import EmbeddingModel
from lmi_core.errors import GenerationFailed
from lmi_plugins.torch_engine.embeddings.embedder import Embedder
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput, EmbeddingJob
from lmi_plugins.torch_engine.model.threads import Threads

logger = logging.getLogger(__name__)


class WaitingInput(NamedTuple):
    """An input, and its index in its request."""

    request_id: str
    place: int
    input: EmbeddingInput


NO_NUMBERS = "the model's output for one of the inputs is not a number"


@dataclass(slots=True)
class EmbeddingResults:
    """The results of one step: vectors, each with the index of its input, and failures."""

    vectors: list[tuple[str, int, bytes]] = field(default_factory=list)
    failures: dict[str, GenerationFailed] = field(default_factory=dict)
    num_tokens: int = 0  # computed by the step


class EmbeddingEngine:
    """An embedding model for many requests. Use it from one thread: `add`, `abort`, and `step` while `has_work`."""

    def __init__(self, embedder: Embedder, model: EmbeddingModel, max_tokens: int, threads: Threads) -> None:
        """`max_tokens` limits one step; a longer input gets its own step."""
        self.model = model
        self._embedder = embedder
        self._max_tokens = max_tokens
        self._threads = threads
        self._waiting: OrderedDict[str, deque[WaitingInput]] = OrderedDict()  # by request
        self._allowed = 0  # tokens, beside a generating model

    @property
    def has_work(self) -> bool:
        return bool(self._waiting)

    def add(self, job: EmbeddingJob) -> None:
        """Queue the inputs of a request."""
        if job.inputs:
            self._waiting[job.request_id] = deque(
                WaitingInput(job.request_id, index, each) for index, each in enumerate(job.inputs)
            )

    def abort(self, request_id: str) -> None:
        """Drop the rest of a request; ignore unknown and finished ones."""
        self._waiting.pop(request_id, None)

    def step_beside(self, generation: Engine | None) -> EmbeddingResults:
        """Run a step if it is its turn; called after each generation step, and when nothing generates.

        Streams are delayed no more than by prompts: each generation step adds a budget of tokens, a step spends its
        tokens, possibly more than the budget, and the next one waits until the budget is positive again.
        """
        if not self.has_work or generation is None or not generation.has_work:
            self._allowed = 0
            return self.step() if self.has_work else EmbeddingResults()
        unnoticed = generation.scheduler.unnoticed_tokens
        self._allowed = min(self._allowed, 0) + unnoticed  # an unused allowance does not accumulate
        if self._allowed <= 0:
            return EmbeddingResults()
        results = self.step(unnoticed)
        self._allowed -= results.num_tokens
        return results

    def step(self, max_tokens: int | None = None) -> EmbeddingResults:
        """Run the model once over waiting inputs, and return the results."""
        batch = self._take(min(self._max_tokens, max_tokens or self._max_tokens))
        results = EmbeddingResults(num_tokens=sum(len(each.input.prompt_ids) for each in batch))
        self._threads.use(results.num_tokens)
        try:
            vectors = self._embedder.embed([each.input for each in batch])
        except torch.AcceleratorError:  # the device can no longer be used
            raise
        except Exception as error:
            logger.exception("Embedding %d inputs failed", len(batch))
            self._fail(batch, f"The embedding failed: {error}", results)
            return results
        self._fail([each for each, vector in zip(batch, vectors, strict=True) if vector is None], NO_NUMBERS, results)
        results.vectors = [
            (each.request_id, each.place, vector)
            for each, vector in zip(batch, vectors, strict=True)
            if vector is not None and each.request_id not in results.failures
        ]
        return results

    def _take(self, max_tokens: int) -> list[WaitingInput]:
        """Remove and return inputs of at most `max_tokens` in total, or one longer input.

        Requests take turns, so that one with many inputs does not delay later ones.
        """
        taken: list[WaitingInput] = []
        tokens = 0
        while self._waiting:
            request_id, inputs = next(iter(self._waiting.items()))
            tokens += len(inputs[0].input.prompt_ids)
            if taken and tokens > max_tokens:
                break
            taken.append(inputs.popleft())
            if inputs:
                self._waiting.move_to_end(request_id)
            else:
                del self._waiting[request_id]
        return taken

    def _fail(self, batch: list[WaitingInput], reason: str, results: EmbeddingResults) -> None:
        """End the requests of these inputs, including their other inputs."""
        results.failures |= {each.request_id: GenerationFailed(reason) for each in batch}
        for request_id in results.failures:
            self.abort(request_id)
