"""Checks of a request's tensors: the table, and errors that say what was expected and what was given."""

import itertools
from typing import Any

import numpy
import pytest
import torch

from lmi_core.errors import InvalidParameter
from lmi_core.generation.tensors import Tensor
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest
from lmi_plugins.trtllm.requests.tensor_table import INPUTS, OUTPUTS
from tests.plugins.trtllm.asking import Asker

ids = itertools.count(10**6)  # unlike those that the asker gives

MANDATORY: dict[str, Any] = {"input_ids": [[5, 6]], "request_output_len": [[3]]}

# NVIDIA's, row by row; None: any size.
TABLE = {
    "request_output_len": ("INT32", (1, 1)),
    "input_ids": ("INT32", (1, -1)),
    "streaming": ("BOOL", (1,)),
    "beam_width": ("INT32", (1,)),
    "temperature": ("FP32", (1,)),
    "runtime_top_k": ("INT32", (1,)),
    "runtime_top_p": ("FP32", (1,)),
    "len_penalty": ("FP32", (1,)),
    "early_stopping": ("INT32", (1,)),
    "repetition_penalty": ("FP32", (1,)),
    "min_length": ("INT32", (1,)),
    "presence_penalty": ("FP32", (1,)),
    "frequency_penalty": ("FP32", (1,)),
    "no_repeat_ngram_size": ("INT32", (1,)),
    "random_seed": ("UINT64", (1,)),
    "end_id": ("INT32", (1,)),
    "pad_id": ("INT32", (1,)),
    "embedding_bias": ("FP32", (1, -1)),
    "bad_words_list": ("INT32", (1, 2, -1)),
    "stop_words_list": ("INT32", (1, 2, -1)),
    "prompt_embedding_table": ("FP16", (-1, -1)),
    "prompt_vocab_size": ("INT32", (1,)),
    "lora_task_id": ("UINT64", (1,)),
    "lora_weights": ("FP32", (-1, -1)),
    "lora_config": ("INT32", (-1, 3)),
    "return_log_probs": ("BOOL", (1,)),
    "return_context_logits": ("BOOL", (1,)),
    "return_generation_logits": ("BOOL", (1,)),
    "draft_input_ids": ("INT32", (-1,)),
    "draft_logits": ("FP32", (-1, -1)),
}


def refusal(tensors: dict[str, Any]) -> str:
    with pytest.raises(InvalidParameter) as refused:
        InferenceRequest(1, tensors)
    return refused.value.message


def test_the_table() -> None:
    assert {each.name: (each.dtype, each.shape) for each in INPUTS} == TABLE
    assert {each.name for each in INPUTS if not each.optional} == {"request_output_len", "input_ids"}
    assert {each.name: each.shape for each in OUTPUTS} == {
        "output_ids": (-1, -1),
        "sequence_length": (-1,),
        "output_log_probs": (1, -1, -1),
        "cum_log_probs": (1, -1),
        "context_logits": (1, -1, -1),
        "generation_logits": (1, -1, -1, -1),
    }


@pytest.mark.parametrize("name", MANDATORY)
def test_what_must_be_given(name: str) -> None:
    assert refusal({other: value for other, value in MANDATORY.items() if other != name}).startswith(
        f"`{name}` is required: INT32 of shape [1, "
    )


def test_an_unknown_name() -> None:
    message = refusal(MANDATORY | {"top_k": [4]})
    assert message.startswith("`top_k` is not an input tensor. Known: request_output_len, input_ids, streaming, ")
    assert "Did you mean `temperature`?" in refusal(MANDATORY | {"temperatur": [4.0]})


@pytest.mark.parametrize("request_id", [-1, 2**64, 1.0, True, "1"])
def test_an_id_that_is_none(request_id: Any) -> None:
    with pytest.raises(InvalidParameter, match=rf"^`request_id` must be an integer from 0 to {2**64 - 1}\. Given: "):
        InferenceRequest(request_id, MANDATORY)


@pytest.mark.parametrize("name", TABLE)
def test_a_wrong_type(name: str) -> None:
    shape = [max(size, 1) for size in TABLE[name][1]]
    message = refusal(MANDATORY | {name: numpy.zeros(shape, "int8")})
    assert message.startswith(f"`{name}` must be {TABLE[name][0]}")
    assert message.endswith(f" Given: INT8 of shape {shape}")


@pytest.mark.parametrize("name", TABLE)
def test_a_wrong_shape(name: str) -> None:
    dtype = {"INT32": "int32", "FP32": "float32", "FP16": "float16", "BOOL": "bool", "UINT64": "uint64"}[TABLE[name][0]]
    axes = len(TABLE[name][1])
    message = refusal(MANDATORY | {name: numpy.ones([2] * (axes + 2), dtype)})
    assert message.startswith(f"`{name}` must be {TABLE[name][0]}")
    shape = ", ".join("any" if size == -1 else str(size) for size in TABLE[name][1])
    assert f" of shape [{shape}]" in message
    assert message.endswith(f" Given: {TABLE[name][0]} of shape {[2] * (axes + 2)}")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"request_output_len": [[0]]}, "`request_output_len` must be at least 1. Given: 0"),
        ({"input_ids": numpy.zeros((1, 0), "int32")}, "`input_ids` must not be empty. Given: shape [1, 0]"),
        ({"beam_width": [0]}, "`beam_width` must be at least 1. Given: 0"),
        ({"temperature": [-0.5]}, "`temperature` must be at least 0 and at most 100. Given: -0.5"),
        ({"temperature": [float("nan")]}, "`temperature` must be at least 0 and at most 100. Given: nan"),
        ({"runtime_top_k": [-1]}, "`runtime_top_k` must be at least 0. Given: -1"),
        ({"runtime_top_p": [1.5]}, "`runtime_top_p` must be at least 0 and at most 1. Given: 1.5"),
        ({"temperature": [float("inf")]}, "`temperature` must be at least 0 and at most 100. Given: inf"),
        ({"len_penalty": [600.0]}, "`len_penalty` must be at least -10 and at most 10. Given: 600"),
        ({"repetition_penalty": [0.0]}, "`repetition_penalty` must be above 0 and at most 100. Given: 0"),
        ({"min_length": [-1]}, "`min_length` must be at least 0. Given: -1"),
        ({"presence_penalty": [float("-inf")]}, "`presence_penalty` must be a finite number. Given: -inf"),
        ({"frequency_penalty": [float("nan")]}, "`frequency_penalty` must be a finite number. Given: nan"),
        ({"no_repeat_ngram_size": [-2]}, "`no_repeat_ngram_size` must be at least 0. Given: -2"),
        ({"end_id": [-2]}, "`end_id` must be at least -1. Given: -2"),
        ({"pad_id": [-2]}, "`pad_id` must be at least -1. Given: -2"),
        (
            {"embedding_bias": [[float("inf")]]},
            "`embedding_bias` must contain finite numbers. Given: inf",
        ),
        (
            {"embedding_bias": [[float("-inf")] * 3]},
            "`embedding_bias` must allow at least one token. Given: -inf for all",
        ),
        (
            {"prompt_embedding_table": numpy.full((1, 4), -numpy.inf, "float16"), "prompt_vocab_size": [1]},
            "`prompt_embedding_table` must contain finite numbers. Given: -inf",
        ),
        ({"bad_words_list": [[[5], [2]]]}, "`bad_words_list` must have the end of each word in its second row, "),
        ({"stop_words_list": [[[5], [0]]]}, "`stop_words_list` must have the end of each word in its second row, "),
        ({"prompt_vocab_size": [3]}, "`prompt_vocab_size` requires `prompt_embedding_table`, which is not given"),
        (
            {"prompt_embedding_table": numpy.ones((2, 4), "float16")},
            "`prompt_embedding_table` requires `prompt_vocab_size`, which is not given",
        ),
        (
            {"prompt_embedding_table": numpy.ones((2, 4), "float16"), "prompt_vocab_size": [3]},
            "`prompt_vocab_size` must be 2, the number of rows of the table. Given: 3",
        ),
        ({"lora_weights": [[1.0]]}, "`lora_weights` requires `lora_config`, which is not given"),
        ({"lora_config": [[1, 0, 4]]}, "`lora_config` requires `lora_weights`, which is not given"),
        (
            {"lora_config": [[1, 0, 4]], "lora_weights": [[1.0]]},
            "`lora_weights` requires `lora_task_id`, which is not given",
        ),
        (
            {"lora_config": [[1, 0, 4]], "lora_weights": [[1.0], [1.0]], "lora_task_id": [1]},
            "`lora_weights` must have as many rows as `lora_config`, 1. Given: 2",
        ),
        ({"draft_input_ids": numpy.zeros(0, "int32")}, "`draft_input_ids` must not be empty. Given: shape [0]"),
        ({"draft_logits": [[1.0]]}, "`draft_logits` requires `draft_input_ids`, which is not given"),
        (
            {"draft_input_ids": [1, 2], "draft_logits": [[1.0]]},
            "`draft_logits` must have as many rows as `draft_input_ids`, 2. Given: 1",
        ),
        (
            {"draft_input_ids": [1], "draft_logits": [[float("nan")]]},
            "`draft_logits` must contain finite numbers. Given: nan",
        ),
        (
            {"draft_input_ids": [1, 2], "draft_logits": [[1.0, 0.0], [float("-inf")] * 2]},
            "`draft_logits` must allow at least one token. Given: -inf for all tokens",
        ),
    ],
    ids=str,
)
def test_a_wrong_value(tensors: dict[str, Any], message: str) -> None:
    assert refusal(MANDATORY | tensors).startswith(message)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"input_ids": [[5, 320]]}, "`input_ids` must contain token ids from 0 to 319. Given: 320"),
        ({"input_ids": [[-5]]}, "`input_ids` must contain token ids from 0 to 319. Given: -5"),
        ({"end_id": [320]}, "`end_id` must contain token ids from 0 to 319. Given: 320"),
        (
            {"bad_words_list": [[[5, 400], [2, -1]]]},
            "`bad_words_list` must contain token ids from 0 to 319. Given: 400",
        ),
        ({"stop_words_list": [[[-3], [1]]]}, "`stop_words_list` must contain token ids from 0 to 319. Given: -3"),
        ({"draft_input_ids": [3, 999]}, "`draft_input_ids` must contain token ids from 0 to 319. Given: 999"),
        ({"embedding_bias": [[1.0] * 319]}, "`embedding_bias` must have rows of 320 numbers, the model's vocabulary."),
        (
            {"draft_input_ids": [3], "draft_logits": [[1.0] * 32]},
            "`draft_logits` must have rows of 320 numbers, the model's vocabulary. Given: 32",
        ),
    ],
    ids=str,
)
def test_a_value_that_the_model_does_not_take(asker: Asker, tensors: dict[str, Any], message: str) -> None:
    """A request with a value that the model does not support fails alone; the next one runs."""
    (response,) = asker.received(asker.hand_over(InferenceRequest(next(ids), MANDATORY | tensors)))
    assert response.error.startswith(message)
    assert len(asker.ids()) == 6


@pytest.mark.parametrize(
    "ids",
    [
        [[5, 6]],
        ((5, 6),),
        numpy.array([[5, 6]], "int32"),
        numpy.array([[5, 6]], ">i4"),
        numpy.array([[5, 9, 6]], "int32")[:, ::2],
        torch.tensor([[5, 6]], dtype=torch.int32),
        Tensor("INT32", (1, 2), bytes([5, 0, 0, 0, 6, 0, 0, 0])),
    ],
    ids=["list", "tuple", "numpy", "big-endian", "strided", "torch", "tensor"],
)
def test_ways_to_give_a_tensor(ids: Any) -> None:
    request = InferenceRequest(1, MANDATORY | {"input_ids": ids})
    assert request.ids("input_ids").tolist() == [5, 6]
    assert request.tensors["input_ids"] == Tensor("INT32", (1, 2), bytes([5, 0, 0, 0, 6, 0, 0, 0]))


def test_lists_become_what_the_table_says() -> None:
    request = InferenceRequest(1, MANDATORY | {"temperature": [1], "random_seed": [2**64 - 1], "streaming": [True]})
    assert request.tensors["temperature"].array().tolist() == [1.0]
    assert request.tensors["random_seed"].array().tolist() == [2**64 - 1]
    assert request.streaming


@pytest.mark.parametrize(
    ("tensors", "given"),
    [
        ({"input_ids": [[5.5]]}, "a list of float64"),
        ({"input_ids": [["5"]]}, "a list of <U1"),
        ({"input_ids": [[2**40]]}, "a list with numbers out of that type's range"),
        ({"random_seed": [-1]}, "a list with numbers out of that type's range"),
        ({"streaming": [1]}, "a list of int64"),
        ({"temperature": 0.5}, "FP32 of shape []"),
        ({"input_ids": torch.ones(1, 2, dtype=torch.int64)}, "INT64 of shape [1, 2]"),
        ({"temperature": torch.ones(1, dtype=torch.bfloat16)}, "BF16 of shape [1]"),
        ({"temperature": numpy.ones(1, "complex64")}, "arrays of type complex64 cannot be KServe tensors"),
    ],
    ids=str,
)
def test_lists_and_arrays_that_are_none_of_the_table(tensors: dict[str, Any], given: str) -> None:
    name = next(iter(tensors))
    message = refusal(MANDATORY | tensors)
    assert message.startswith(f"`{name}` must be {TABLE[name][0]} of shape [")
    assert message.endswith(f" Given: {given}")


def test_rows_of_different_lengths() -> None:
    assert refusal(MANDATORY | {"input_ids": [[1], [2, 3]]}).startswith("`input_ids` must be INT32 of shape [1, any].")
