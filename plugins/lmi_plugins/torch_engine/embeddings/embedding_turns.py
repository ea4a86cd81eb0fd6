"""Vectors of a model that generates too."""

from lmi_plugins.torch_engine.embeddings.engine import EmbeddingEngine, EmbeddingResults
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingJob


class EmbeddingTurns:
    """The engine of a generating model's vectors, whose steps slow streams no more than other prompts do.

    Each step of generation allows for as many tokens as a prompt in it might have; a step of vectors uses up what it
    computes, which may be more than was left, and then waits until that is allowed for too.
    """

    def __init__(self, embeddings: EmbeddingEngine, generation: Engine) -> None:
        self._embeddings = embeddings
        self._generation = generation
        self._allowed = 0  # tokens

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
        has_work, generates = self._embeddings.has_work, self._generation.has_work
        if not has_work or not generates:
            self._allowed = 0
            return self._embeddings.step() if has_work else EmbeddingResults()
        unnoticed = self._generation.unnoticed_tokens
        self._allowed = min(self._allowed, 0) + unnoticed  # what was not used is not saved up
        if self._allowed <= 0:
            return EmbeddingResults()
        results = self._embeddings.step(unnoticed)
        self._allowed -= results.num_tokens
        return results
