"""Lists of words in TensorRT-LLM's form: [1, 2, n], a row with all token ids and a row with the end of each word."""

from lmi_core.errors import InvalidParameter
from lmi_core.generation.tensors import Tensor

PADDING = -1


def read_words(name: str, tensor: Tensor) -> list[list[int]]:
    """Return the token ids of each word; raise InvalidParameter, which names the tensor, if they cannot be read."""
    ids, ends = tensor.array()[0].tolist()
    words: list[list[int]] = []
    begin = 0
    for place, end in enumerate(ends):
        if end == PADDING:
            break
        if not begin < end <= len(ids):
            raise InvalidParameter(
                f"`{name}` must have the end of each word in its second row, in increasing order from 1 to "
                f"{len(ids)}, then {PADDING}. Given: {end} at index {place} of {ends}"
            )
        words.append(ids[begin:end])
        begin = end
    if any(end != PADDING for end in ends[len(words) :]):
        raise InvalidParameter(f"`{name}` must have only {PADDING} after the end of the last word. Given: {ends}")
    return words
