"""Lists of words in TensorRT-LLM's two rows."""

import numpy
import pytest

from lmi_core.errors import InvalidParameter
from lmi_core.generation.tensors import Tensor
from lmi_plugins.trtllm.requests.value_checks import MAX_WORDS, read_words


def tensor(ids: list[int], ends: list[int]) -> Tensor:
    return Tensor.from_array(numpy.array([[ids, ends]], "int32"))


def test_the_example_of_the_specification() -> None:
    assert read_words("bad_words_list", tensor([5, 7, 3, 9, 2], [3, 5, -1, -1, -1])) == [[5, 7, 3], [9, 2]]


def test_padding() -> None:
    assert read_words("stop_words_list", tensor([5, 0, 0], [1, -1, -1])) == [[5]]
    assert read_words("stop_words_list", tensor([0], [-1])) == []


@pytest.mark.parametrize(
    ("ends", "given"),
    [
        ([0, 3, -1], "0 at index 0 of [0, 3, -1]"),
        ([2, 2, -1], "2 at index 1 of [2, 2, -1]"),
        ([3, 2, -1], "2 at index 1 of [3, 2, -1]"),
        ([4, -1, -1], "4 at index 0 of [4, -1, -1]"),
        ([1, -2, -1], "-2 at index 1 of [1, -2, -1]"),
    ],
)
def test_ends_that_are_wrong(ends: list[int], given: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        read_words("bad_words_list", tensor([5, 7, 3], ends))
    assert refused.value.message == (
        "`bad_words_list` must have the end of each word in its second row, in increasing order from 1 to 3, then "
        f"-1. Given: {given}"
    )


def test_ends_after_the_padding() -> None:
    with pytest.raises(InvalidParameter) as refused:
        read_words("bad_words_list", tensor([5, 7, 3], [1, -1, 3]))
    assert refused.value.message == (
        "`bad_words_list` must have only -1 after the end of the last word. Given: [1, -1, 3]"
    )


def test_too_many() -> None:
    ids = [*range(MAX_WORDS + 1)]
    ends = [*range(1, MAX_WORDS + 2)]
    assert len(read_words("stop_words_list", tensor(ids[1:], [*ends[:-1]]))) == MAX_WORDS
    with pytest.raises(InvalidParameter) as refused:
        read_words("stop_words_list", tensor(ids, ends))
    assert refused.value.message == "`stop_words_list` must have at most 1024 words. Given: 1025"
