"""LMI's parameters for TensorRT-LLM: their defaults and bounds."""

from typing import Any

import pytest
from pydantic import ValidationError

from lmi_plugins.trtllm.parameters import TrtllmParameters
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest
from lmi_plugins.trtllm.requests.translation import engine_request


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


def test_bad_sequences_are_no_tokens() -> None:
    asked = InferenceRequest(1, {"input_ids": [[3, 4]], "request_output_len": [[1]]}, ["one two"])
    assert engine_request(asked, None).parameters.bad_texts == ["one two"]
    assert engine_request(asked, None).parameters.bad_sequences == []
