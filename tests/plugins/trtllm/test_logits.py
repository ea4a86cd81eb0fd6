"""Log probabilities and logits are those of a full forward pass, in every way in which tokens come."""

from typing import Any

import numpy
import pytest
import torch

from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import VOCABULARY
from tests.plugins.trtllm.asking import PROMPT, Asker
from tests.plugins.trtllm.requests.by_hand import all_logits, greedy, log_probs

EVERYTHING: dict[str, Any] = {
    "return_log_probs": [True],
    "return_context_logits": [True],
    "return_generation_logits": [True],
}
LONG_PROMPT = [(7 * place) % 300 for place in range(50)]


def assert_near(actual: Any, expected: Any) -> None:
    numpy.testing.assert_allclose(numpy.asarray(actual), numpy.asarray(expected), rtol=0, atol=2e-4)


@pytest.mark.parametrize("prompt", [PROMPT, LONG_PROMPT], ids=len)
def test_a_whole_answer(asker: Asker, reference: ReferenceModel, prompt: list[int]) -> None:
    tensors = asker.ask(prompt, 9, **EVERYTHING)
    generated = tensors["output_ids"][0].tolist()
    logits = all_logits(reference("llama"), [*prompt, *generated])
    assert {name: (array.shape, str(array.dtype)) for name, array in tensors.items()} == {
        "output_ids": ((1, 9), "int32"),
        "sequence_length": ((1,), "int32"),
        "output_log_probs": ((1, 1, 9), "float32"),
        "cum_log_probs": ((1, 1), "float32"),
        "context_logits": ((1, len(prompt), VOCABULARY), "float32"),
        "generation_logits": ((1, 1, 9, VOCABULARY), "float32"),
    }
    assert_near(tensors["context_logits"][0], logits[: len(prompt)])
    assert_near(tensors["generation_logits"][0, 0], logits[len(prompt) - 1 : -1])
    expected = log_probs(reference("llama"), prompt, generated)
    assert_near(tensors["output_log_probs"][0, 0], expected)
    assert_near(tensors["cum_log_probs"], [[sum(expected)]])


def test_prompts_that_are_cached_have_logits_too(asker: Asker) -> None:
    first = asker.ask(LONG_PROMPT, 2)
    again = asker.ask(LONG_PROMPT, 2, **EVERYTHING)
    assert again["output_ids"].tolist() == first["output_ids"].tolist()
    assert again["context_logits"].shape == (1, 50, VOCABULARY)


@pytest.mark.parametrize("wanted", EVERYTHING)
def test_each_alone(asker: Asker, wanted: str) -> None:
    own: dict[str, set[str]] = {
        "return_log_probs": {"output_log_probs", "cum_log_probs"},
        "return_context_logits": {"context_logits"},
        "return_generation_logits": {"generation_logits"},
    }
    basic = {"output_ids", "sequence_length"}
    assert set(asker.ask(PROMPT, 6, **{wanted: [True]})) == basic | own[wanted]
    assert set(asker.ask(PROMPT, 6, **{wanted: [False]})) == basic


def test_a_stream(asker: Asker) -> None:
    whole = asker.ask(**EVERYTHING)
    stream = asker.stream(**EVERYTHING)
    assert ["context_logits" in response for response in stream] == [True] + [False] * 5
    assert_near(stream[0]["context_logits"], whole["context_logits"])
    for name, axis in (("output_ids", 1), ("output_log_probs", 2), ("generation_logits", 2)):
        assert_near(numpy.concatenate([response[name] for response in stream], axis), whole[name])
    so_far = numpy.cumsum([response["output_log_probs"].item() for response in stream])
    assert_near([response["cum_log_probs"].item() for response in stream], so_far)


def test_log_probs_are_the_models_own(asker: Asker, reference: ReferenceModel) -> None:
    """Log probabilities are the model's own, before the request's sampling parameters apply."""
    bias = numpy.zeros((1, VOCABULARY), "float32")
    bias[0, 200] = 1000
    tensors = asker.ask(count=3, embedding_bias=bias, **EVERYTHING)
    assert_near(tensors["output_log_probs"][0, 0], log_probs(reference("llama"), PROMPT, [200] * 3))
    assert_near(tensors["generation_logits"][0, 0], all_logits(reference("llama"), [*PROMPT, 200, 200, 200])[2:-1])


def test_draft_tokens_that_are_accepted_have_logits_too(asker: Asker, reference: ReferenceModel) -> None:
    free = greedy(reference("llama"), PROMPT, 6)
    drafted = asker.ask(draft_input_ids=numpy.array([*free[:3], 9], "int32"), **EVERYTHING)
    plain = asker.ask(**EVERYTHING)
    for name in plain:
        assert_near(drafted[name], plain[name])


def test_sampled_tokens(asker: Asker, reference: ReferenceModel) -> None:
    tensors = asker.ask(runtime_top_k=[50], temperature=[3.0], random_seed=[5], **EVERYTHING)
    generated = tensors["output_ids"][0].tolist()
    assert_near(tensors["output_log_probs"][0, 0], log_probs(reference("llama"), PROMPT, generated))


def test_half_precision(model_directory: ModelDirectory) -> None:
    """The tensors are float32 whatever the model's type is."""
    with Asker(model_directory("llama"), dtype="bf16") as asker:
        tensors = asker.ask(**EVERYTHING)
    assert {str(tensors[name].dtype) for name in ("context_logits", "generation_logits")} == {"float32"}
    own = torch.tensor(tensors["generation_logits"][0, 0]).log_softmax(-1)
    expected = own[torch.arange(6), torch.tensor(tensors["output_ids"][0].tolist())]
    assert_near(tensors["output_log_probs"][0, 0], expected)
