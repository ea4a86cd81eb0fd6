"""Vectors of a model that generates too."""

from lmi_plugins.torch_engine.embeddings.engine import EmbeddingEngine, EmbeddingResults
from lmi_plugins.torch_engine.embeddings.pace import Pace
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingJob


class EmbeddingTurns:
    """The engine of a generating model's vectors, which takes turns with the engine that generates."""

    def __init__(self, embeddings: EmbeddingEngine, generation: Engine) -> None:
        self._embeddings = embeddings
        self._generation = generation
        self._pace = Pace()

    @property
    def has_work(self) -> bool:
        return self._embeddings.has_work

    def add(self, job: EmbeddingJob) -> None:
        """Have the inputs of a request wait for their turn."""
        self._embeddings.add(job)

    def abort(self, request_id: str) -> None:
        """Drop what is left of a request; unknown and finished ones are ignored."""
        self._embeddings.abort(request_id)

    def step(self) -> EmbeddingResults:
        """Make vectors if it is their turn; called after each step of generation, and where nothing generates."""
        if not self._embeddings.has_work:
            self._pace.reset()
            return EmbeddingResults()
        if not self._generation.has_work:
            self._pace.reset()
            return self._embeddings.step()
        unnoticed = self._generation.unnoticed_tokens
        self._pace.generated(unnoticed)
        if not self._pace.is_due:
            return EmbeddingResults()
        results = self._embeddings.step(unnoticed)
        self._pace.embedded(results.num_tokens)
        return results
