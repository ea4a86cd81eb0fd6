"""Tensors as Triton's clients send them, in the form of the table."""

from typing import Any

import numpy
import pytest

from lmi_core.errors import InvalidParameter
from lmi_core.generation.tensors import Tensor
from lmi_plugins.trtllm.requests.triton_inputs import from_triton


def tensor(numbers: Any, dtype: str = "int32") -> Tensor:
    return Tensor.from_array(numpy.array(numbers, dtype))


def test_what_the_table_has_stays_as_it_is() -> None:
    given = {
        "input_ids": tensor([[1, 2]]),
        "request_output_len": tensor([[3]]),
        "streaming": tensor([True], "bool"),
        "lora_config": tensor([[1, 2, 3]]),
        "draft_logits": tensor([[1.0, 2.0]], "float32"),
        "prompt_embedding_table": tensor([[[1.0]]], "float16"),
    }
    assert from_triton(given) == given


def test_the_batch_axis_is_taken_off() -> None:
    given = {
        "streaming": tensor([[True]], "bool"),
        "lora_config": tensor([[[1, 2, 3]]]),
        "draft_input_ids": tensor([[4]]),
    }
    expected = {"streaming": tensor([True], "bool"), "lora_config": tensor([[1, 2, 3]]), "draft_input_ids": tensor([4])}
    assert from_triton(given) == expected


def test_batches_and_unknown_tensors_are_left_to_who_refuses_them() -> None:
    given = {"end_id": tensor([[1], [2]]), "temperature": tensor([[[1]]]), "other": tensor([[1]])}
    assert from_triton(given) == given


def test_input_lengths_cut_what_fills_the_batch_up() -> None:
    given = {"input_ids": tensor([[5, 6, 7, 0, 0]]), "input_lengths": tensor([[3]])}
    assert from_triton(given) == {"input_ids": tensor([[5, 6, 7]])}


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (tensor([[0]]), "`input_lengths` must be from 1 to 2, the size of `input_ids`. Given: 0"),
        (tensor([3]), "`input_lengths` must be from 1 to 2, the size of `input_ids`. Given: 3"),
        (tensor([[1, 1]]), "`input_lengths` must be INT32 of shape [1, 1]. Given: INT32 of shape [1, 2]"),
        (tensor([[1]], "int64"), "`input_lengths` must be INT32 of shape [1, 1]. Given: INT64 of shape [1, 1]"),
    ],
)
def test_input_lengths_that_are_wrong(lengths: Tensor, message: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        from_triton({"input_ids": tensor([[5, 6]]), "input_lengths": lengths})
    assert refused.value.message == message
