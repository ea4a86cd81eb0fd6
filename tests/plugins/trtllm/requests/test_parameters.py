"""LMI's parameters for TensorRT-LLM: their defaults, and the tensors that they become."""

from typing import Any

import pytest
from pydantic import ValidationError

from lmi_core.generation.request import ValidRequest
from lmi_plugins.trtllm.parameters import TrtllmParameters
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest
from lmi_plugins.trtllm.requests.translation import engine_request
from lmi_plugins.trtllm.requests.word_lists import read_words
from lmi_plugins.trtllm.texts.request import request_tensors


@pytest.mark.parametrize(
    ("given", "temperature", "top_k", "top_p", "samples"),
    [
        ({}, 0.8, 0, 0.0, False),
        ({"do_sample": False}, 0.8, 0, 0.0, False),
        ({"do_sample": True}, 1.0, 5, 0.85, True),
        ({"do_sample": True, "top_k": 0}, 1.0, 0, 0.85, True),
        ({"do_sample": True, "top_k": 0, "top_p": 0.0}, 1.0, 0, 0.0, False),
        ({"do_sample": True, "temperature": 0.3}, 0.3, 5, 0.85, True),
        ({"top_k": 7}, 0.8, 7, 0.0, True),
        ({"top_p": 0.5}, 0.8, 0, 0.5, True),
        ({"do_sample": False, "top_k": 7}, 0.8, 7, 0.0, False),
        ({"top_k": -1}, 0.8, -1, 0.0, False),
        ({"top_k": 7, "num_beams": 2}, 0.8, 7, 0.0, False),
    ],
    ids=str,
)
def test_defaults(given: dict[str, Any], temperature: float, top_k: int, top_p: float, samples: bool) -> None:
    parameters = TrtllmParameters(**given)
    assert (parameters.temperature, parameters.top_k, parameters.top_p) == (temperature, top_k, top_p)
    assert parameters.samples == samples
    assert (parameters.min_length, parameters.bad_sequences, parameters.stop) == (1, None, False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"top_p": 1.1},
        {"top_k": -2},
        {"top_k": 2**31},
        {"temperature": -1.0},
        {"min_length": -1},
        {"presence_penalty": 1e39},
        {"stop_token_ids": [2**31]},
        {"n": 0},
        {"n": 65},
        {"n": 3, "num_beams": 2},
        {"best_of": 2},
        {"logprobs": 21},
        {"allowed_token_ids": [5]},
        {"logprob_token_ids": [5]},
        {"reasoning_budget": {"tokens": 1, "ends": [[5]]}},
    ],
    ids=str,
)
def test_bounds(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TrtllmParameters(**wrong)


def request(eos_token_ids: list[int], **parameters: Any) -> InferenceRequest:
    valid = ValidRequest("a", "x", [3, 4], TrtllmParameters(**parameters))
    return InferenceRequest(1, request_tensors(valid, eos_token_ids))


@pytest.mark.parametrize(
    ("parameters", "name", "value"),
    [
        ({}, "streaming", True),
        ({}, "min_length", 1),
        ({}, "runtime_top_k", 0),
        ({}, "runtime_top_p", 0.0),
        ({"do_sample": True}, "runtime_top_k", 5),
        ({"do_sample": True}, "runtime_top_p", pytest.approx(0.85)),
        ({"do_sample": True}, "temperature", 1.0),
        ({"do_sample": True, "top_k": -1}, "runtime_top_k", 0),
        ({"seed": 2**63 - 1}, "random_seed", 2**63 - 1),
        ({"repetition_penalty": 1.5}, "repetition_penalty", 1.5),
        ({"presence_penalty": -2.5}, "presence_penalty", -2.5),
        ({"frequency_penalty": 0.5}, "frequency_penalty", 0.5),
        ({"no_repeat_ngram_size": 3}, "no_repeat_ngram_size", 3),
        ({"max_new_tokens": 9}, "request_output_len", 9),
        ({"num_beams": 3}, "beam_width", 3),
        ({"num_beams": 3}, "streaming", False),
        ({"num_beams": 3, "length_penalty": 2.0}, "len_penalty", 2.0),
        ({"details": True, "decoder_input_details": True}, "return_context_logits", True),
        ({"ignore_eos_token": True}, "end_id", -1),
        ({}, "end_id", 7),
    ],
    ids=str,
)
def test_tensors(parameters: dict[str, Any], name: str, value: Any) -> None:
    made = request([7], **parameters)
    assert made.input_ids == [3, 4]
    assert made.number(name, -99) == value


def test_further_end_tokens_are_stop_words() -> None:
    made = request([7, 8, 9])
    assert made.number("end_id", -1) == 7
    assert read_words("stop_words_list", made.tensors["stop_words_list"]) == [[8], [9]]
    assert "stop_words_list" not in request([7, 8], ignore_eos_token=True).tensors


def test_stop_token_ids_are_stop_words() -> None:
    made = request([7], stop_token_ids=[3, 5])
    assert read_words("stop_words_list", made.tensors["stop_words_list"]) == [[3], [5]]


def test_bad_sequences_are_no_tokens() -> None:
    assert "bad_words_list" not in request([], bad_sequences=["one two"]).tensors
    asked = InferenceRequest(1, request([]).tensors, ["one two"])
    assert engine_request(asked, None).parameters.bad_texts == ["one two"]
    assert engine_request(asked, None).parameters.bad_sequences == []


def test_each_sequence_has_a_seed_of_its_own() -> None:
    valid = ValidRequest("a", "x", [3, 4], TrtllmParameters(seed=5, n=3))
    seeds = [InferenceRequest(1, request_tensors(valid, [], index)).number("random_seed", 0) for index in range(3)]
    assert seeds[0] == 5
    assert len(set(seeds)) == 3


def test_seeds_differ_where_none_is_given() -> None:
    assert len({request([]).number("random_seed", 0) for _ in range(3)}) == 3
