"""Embeddings from a model that also generates."""

from lmi_plugins.torch_engine.embeddings.engine import EmbeddingEngine, EmbeddingResults
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingJob


class EmbeddingTurns:
    """The embedding engine of a generating model, which delays streams no more than prompts do.

    Each generation step adds a budget of tokens; an embedding step spends its tokens, possibly more than the budget,
    and the next one waits until the budget is positive again.
    """

    def __init__(self, embeddings: EmbeddingEngine, generation: Engine) -> None:
        self._embeddings = embeddings
        self._generation = generation
        self._allowed = 0  # tokens

    @property
    def has_work(self) -> bool:
        return self._embeddings.has_work

    def add(self, job: EmbeddingJob) -> None:
        """Queue the inputs of a request."""
        self._embeddings.add(job)

    def abort(self, request_id: str) -> None:
        """Drop the rest of a request; ignore unknown and finished ones."""
        self._embeddings.abort(request_id)

    def step(self) -> EmbeddingResults:
        """Run an embedding step if it is its turn; called after each generation step, and when nothing generates."""
        has_work, generates = self._embeddings.has_work, self._generation.has_work
        if not has_work or not generates:
            self._allowed = 0
            return self._embeddings.step() if has_work else EmbeddingResults()
        unnoticed = self._generation.unnoticed_tokens
        self._allowed = min(self._allowed, 0) + unnoticed  # an unused allowance does not accumulate
        if self._allowed <= 0:
            return EmbeddingResults()
        results = self._embeddings.step(unnoticed)
        self._allowed -= results.num_tokens
        return results
