"""Effects of each tensor of the request on the choice of tokens."""

from typing import Any

import numpy
import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from tests.plugins.torch_engine.conftest import ReferenceModel
from tests.plugins.torch_engine.tiny_models import VOCABULARY
from tests.plugins.trtllm.asking import PROMPT, Asker
from tests.plugins.trtllm.requests.by_hand import greedy

SAMPLED: dict[str, Any] = {"runtime_top_k": [50], "temperature": [5.0]}


@pytest.fixture(scope="module")
def llama(reference: ReferenceModel) -> Any:
    return reference("llama")


@pytest.fixture(scope="module")
def free(llama: Any) -> list[int]:
    """Return the tokens generated without any sampling tensor, six different ones."""
    ids = greedy(llama, PROMPT, 6)
    assert len(set(ids)) == 6
    return ids


def words(*each: list[int]) -> list[Any]:
    """Return a word list in two rows: the ids, and the end of each word."""
    ids = [token_id for word in each for token_id in word]
    ends = numpy.cumsum([len(word) for word in each]).tolist()
    return [[ids, ends + [-1] * (len(ids) - len(ends))]]


def test_greedy_unless_top_k_or_top_p_is_given(asker: Asker, free: list[int]) -> None:
    assert asker.ids() == free
    assert asker.ids(temperature=[5.0]) == free
    assert asker.ids(runtime_top_k=[0], runtime_top_p=[0.0], temperature=[5.0], random_seed=[9]) == free


def test_sampling_follows_its_seed(asker: Asker, free: list[int]) -> None:
    texts = [asker.ids(random_seed=numpy.array([seed], "uint64"), **SAMPLED) for seed in (0, 1, 2**64 - 1)]
    assert len({tuple(text) for text in [*texts, free]}) == 4
    assert asker.ids(random_seed=numpy.array([2**64 - 1], "uint64"), **SAMPLED) == texts[2]
    assert asker.ids(**SAMPLED) == texts[0]  # 0 is the default


def test_filters_of_one_token_are_greedy(asker: Asker, free: list[int]) -> None:
    assert asker.ids(runtime_top_k=[1], temperature=[5.0]) == free
    assert asker.ids(runtime_top_p=[1e-6], temperature=[5.0]) == free
    assert asker.ids(runtime_top_k=[50], runtime_top_p=[1e-6], temperature=[5.0]) == free
    assert asker.ids(runtime_top_k=[50], temperature=[0.0]) == free


def test_top_k_and_top_p_leave_out_what_they_should(asker: Asker, llama: Any) -> None:
    """The first token, drawn often: only those that the filters leave come, and each of them does."""
    logits = torch.tensor(asker.ask(count=1, return_context_logits=[True])["context_logits"][0, -1])
    likeliest = logits.topk(3).indices.tolist()
    hot: dict[str, Any] = {"temperature": [20.0]}
    drawn = {asker.ids(count=1, runtime_top_k=[3], random_seed=[seed], **hot)[0] for seed in range(40)}
    assert drawn == set(likeliest)
    two = float((logits / 20).softmax(-1).topk(2).values.sum())
    drawn = {asker.ids(count=1, runtime_top_p=[two - 1e-4], random_seed=[seed], **hot)[0] for seed in range(40)}
    assert drawn == set(likeliest[:2])
    one_of_three = 1 / 3 - 0.01  # of what top-k leaves, renormalized: the first alone
    both = {
        asker.ids(count=1, runtime_top_k=[3], runtime_top_p=[one_of_three], random_seed=[seed], **hot)[0]
        for seed in range(10)
    }
    assert both == {likeliest[0]}


def test_end_id(asker: Asker, free: list[int]) -> None:
    assert asker.ids(end_id=[free[2]]) == free[:3]
    assert asker.ids(end_id=[-1]) == free
    stream = asker.stream(end_id=[free[2]])
    assert [response["output_ids"].item() for response in stream] == free[:3]


def test_min_length(asker: Asker, llama: Any, free: list[int]) -> None:
    def without_end(logits: torch.Tensor, ids: list[int]) -> torch.Tensor:
        too_early = len(ids) - len(PROMPT) < 4
        return logits.index_fill(0, torch.tensor([free[2]]), -torch.inf) if too_early else logits

    expected = greedy(llama, PROMPT, 30, without_end)
    expected = expected[: expected.index(free[2]) + 1] if free[2] in expected else expected
    assert asker.ids(count=30, end_id=[free[2]], min_length=[4]) == expected
    assert len(expected) > 4
    assert asker.ids(end_id=[free[2]], min_length=[2]) == free[:3]


def test_a_stop_word_of_three_tokens(asker: Asker, free: list[int]) -> None:
    assert asker.ids(stop_words_list=words(free[1:4])) == free[:4]
    assert asker.ids(stop_words_list=words([9, 9], free[1:4])) == free[:4]
    assert asker.ids(stop_words_list=words([free[1], free[3]], free[2:4], [free[5]])) == free[:4]
    streamed = asker.stream(stop_words_list=words(free[1:4]))
    assert [response["output_ids"].item() for response in streamed] == free[:4]
    assert asker.ids(stop_words_list=words([free[1], free[3]])) == free


def test_a_bad_word_of_one_token(asker: Asker, llama: Any, free: list[int]) -> None:
    def without(logits: torch.Tensor, ids: list[int]) -> torch.Tensor:
        return logits.index_fill(0, torch.tensor([free[1]]), -torch.inf)

    expected = greedy(llama, PROMPT, 6, without)
    assert asker.ids(bad_words_list=words([free[1]])) == expected
    assert expected[0] == free[0]
    assert free[1] not in expected


def test_a_bad_word_of_three_tokens(asker: Asker, llama: Any, free: list[int]) -> None:
    """The last token of a bad word is excluded only after the others."""
    word = free[1:4]

    def without(logits: torch.Tensor, ids: list[int]) -> torch.Tensor:
        return logits.index_fill(0, torch.tensor(word[2:]), -torch.inf) if ids[-2:] == word[:2] else logits

    expected = greedy(llama, PROMPT, 6, without)
    assert expected[:3] == free[:3]
    assert expected[3] != free[3]
    assert asker.ids(bad_words_list=words([300, 301], word)) == expected
    assert asker.ids(bad_words_list=words([*word[:2], word[0]])) == free


def test_an_end_token_may_be_bad(asker: Asker, free: list[int]) -> None:
    bad = words([free[2]])
    assert asker.ids(end_id=[free[2]], bad_words_list=bad) == asker.ids(bad_words_list=bad)


def test_a_bias_forces_a_token(asker: Asker, llama: Any, free: list[int]) -> None:
    bias = numpy.zeros((1, VOCABULARY), "float32")
    bias[0, 200] = 1000
    assert asker.ids(embedding_bias=bias) == [200] * 6
    bias[0, 200] = -1000
    bias[0, free[0]] = -numpy.inf
    added = torch.tensor(bias[0])
    assert asker.ids(embedding_bias=bias) == greedy(llama, PROMPT, 6, lambda logits, _: logits + added)
    assert asker.ids(embedding_bias=numpy.zeros((1, VOCABULARY), "float32")) == free


def test_repetition_penalty(asker: Asker, llama: Any) -> None:
    processor = RepetitionPenaltyLogitsProcessor(1.7)

    def penalized(logits: torch.Tensor, ids: list[int]) -> torch.Tensor:
        scores: torch.Tensor = processor(torch.tensor([ids]), logits[None])[0]
        return scores

    assert asker.ids(count=40, repetition_penalty=[1.7]) == greedy(llama, PROMPT, 40, penalized)
    assert asker.ids(count=40, repetition_penalty=[1.7]) != asker.ids(count=40)


@pytest.mark.parametrize(("presence", "frequency"), [(4.0, 0.0), (0.0, 2.0), (3.0, 1.5), (-3.0, 0.0), (0.0, -2.0)])
def test_presence_and_frequency_penalty_count_the_prompt(
    asker: Asker, llama: Any, presence: float, frequency: float
) -> None:
    def penalized(logits: torch.Tensor, ids: list[int]) -> torch.Tensor:
        counts = torch.bincount(torch.tensor(ids), minlength=VOCABULARY)
        return logits - presence * (counts > 0) - frequency * counts

    prompt = [*greedy(llama, PROMPT, 4), *PROMPT]
    expected = greedy(llama, prompt, 30, penalized)
    assert asker.ids(prompt, 30, presence_penalty=[presence], frequency_penalty=[frequency]) == expected
    assert expected != greedy(llama, prompt, 30)


def test_no_repeat_ngram_size(asker: Asker, free: list[int]) -> None:
    prompt = [*PROMPT, *free[:2], *PROMPT]
    bias = numpy.zeros((1, VOCABULARY), "float32")
    bias[0, [8, 9]] = 1000, 900
    assert asker.ids(prompt, 5, embedding_bias=bias) == [8] * 5
    assert asker.ids(prompt, 5, embedding_bias=bias, no_repeat_ngram_size=[1])[:2] == [8, 9]
    # After the second 8, the run 8 8 was there; after the 9, the run 9 8 was not; after it, neither 8 8 nor 8 9 can be.
    twos = asker.ids(prompt, 5, embedding_bias=bias, no_repeat_ngram_size=[2])
    assert twos[:4] == [8, 8, 9, 8]
    assert twos[4] not in (8, 9)
    bias[0, 8] = 0
    bias[0, PROMPT] = 1000, 900, 800
    assert asker.ids(prompt, 1, embedding_bias=bias, no_repeat_ngram_size=[4]) == [5]
    # The prompt has the run 5 6 7 79 already.
    bias[0, 79] = 2000
    assert asker.ids([*PROMPT, 79, *PROMPT], 1, embedding_bias=bias, no_repeat_ngram_size=[4]) == [5]
    assert asker.ids([*PROMPT, 79, *PROMPT], 1, embedding_bias=bias, no_repeat_ngram_size=[5]) == [79]


def test_everything_at_once(asker: Asker, llama: Any, free: list[int]) -> None:
    bias = numpy.zeros((1, VOCABULARY), "float32")
    bias[0, free[0]] = -1000

    def changed(logits: torch.Tensor, ids: list[int]) -> torch.Tensor:
        logits = logits + torch.tensor(bias[0])
        counts = torch.bincount(torch.tensor(ids), minlength=VOCABULARY)
        logits = logits - 0.5 * (counts > 0) - 0.25 * counts
        return logits.index_fill(0, torch.tensor([free[1], 12]), -torch.inf)

    expected = greedy(llama, PROMPT, 12, changed)
    end, stop = expected[10], expected[3:6]
    tensors: dict[str, Any] = {
        "embedding_bias": bias,
        "presence_penalty": [0.5],
        "frequency_penalty": [0.25],
        "bad_words_list": words([free[1]], [12]),
        "end_id": [end],
        "runtime_top_k": [1],
        "return_log_probs": [True],
    }
    until_end = expected[: expected.index(end) + 1]
    assert asker.ids(count=12, **tensors) == until_end
    assert asker.ids(count=12, stop_words_list=words([7, 7, 7], stop), **tensors) == expected[:6]
