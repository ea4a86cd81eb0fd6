"""Vectors of a model that generates too, in turn with its streams."""

from types import SimpleNamespace
from typing import Any, cast

from lmi_core.embedding_backend import EmbeddingModel
from lmi_plugins.torch_engine.embeddings.engine import EmbeddingEngine
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput, EmbeddingJob

UNNOTICED = 20


class Generation:
    has_work = True
    scheduler = SimpleNamespace(unnoticed_tokens=UNNOTICED)


STREAMS = cast(Any, Generation())


def turns(tokens: int = 8) -> EmbeddingEngine:
    embedder = SimpleNamespace(embed=lambda inputs: [b""] * len(inputs))
    threads = SimpleNamespace(use=lambda _: None)
    found = EmbeddingEngine(cast(Any, embedder), EmbeddingModel(1, 512), 512, cast(Any, threads))
    found.add(EmbeddingJob("a", [EmbeddingInput([5] * tokens)] * 40))
    return found


def test_beside_streams_a_step_has_no_more_than_they_notice() -> None:
    found = turns()
    assert [found.step_beside(STREAMS).num_tokens for _ in range(5)] == [16] * 5


def test_a_long_text_is_made_up_for() -> None:
    found = turns()
    found.add(EmbeddingJob("b", [EmbeddingInput([5] * 100)]))
    steps = [found.step_beside(STREAMS).num_tokens for _ in range(12)]
    assert max(steps) == 100
    assert steps[steps.index(100) + 1 :][:4] == [0] * 4
    assert sum(steps[steps.index(100) + 1 :]) > 0


def test_alone_a_step_has_as_many_as_may_be() -> None:
    generation = Generation()
    generation.has_work = False
    found = turns()
    assert [found.step_beside(cast(Any, generation)).num_tokens for _ in range(2)] == [320, 0]
    assert not found.has_work


def test_steps_of_vectors_wait_until_generation_has_allowed_for_them() -> None:
    found = turns(tokens=100)
    steps = [found.step_beside(STREAMS).num_tokens for _ in range(30)]
    assert steps.count(100) == 6, "100 tokens at a time, 20 allowed for by each step of generation"
    assert steps[:6] == [100, 0, 0, 0, 0, 100]


def test_what_was_not_used_is_not_saved_up() -> None:
    found = turns(tokens=20)
    for _ in range(10):
        found.step_beside(STREAMS)
    found.add(EmbeddingJob("b", [EmbeddingInput([5] * 100)]))
    steps = [found.step_beside(STREAMS).num_tokens for _ in range(8)]
    assert steps[steps.index(100) + 1 :][:4] == [0] * 4


def test_nothing_waits_where_nothing_generates() -> None:
    generation = Generation()
    found = turns(tokens=1000)
    assert [found.step_beside(cast(Any, generation)).num_tokens for _ in range(3)] == [1000, 0, 0]
    generation.has_work = False
    assert found.step_beside(cast(Any, generation)).num_tokens == 1000
