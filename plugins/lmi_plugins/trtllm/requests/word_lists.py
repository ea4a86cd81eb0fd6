"""Lists of words in TensorRT-LLM's form: [1, 2, n], a row with all token ids and a row with the end of each word."""

from itertools import pairwise

from lmi_core.errors import InvalidParameter
from lmi_core.generation.tensors import Tensor
from lmi_core.payloads.payload import quote

WORD_LISTS = ("bad_words_list", "stop_words_list")
PADDING = -1
MAX_WORDS = 1024  # of one list; each is compared with the end of the text at every step


def read_words(name: str, tensor: Tensor) -> list[list[int]]:
    """Return the token ids of each word; raise InvalidParameter, which names the tensor, if they cannot be read."""
    ids, ends = tensor.array()[0]
    padding = ends == PADDING
    count = int(padding.argmax()) if padding.any() else len(ends)
    if count > MAX_WORDS:
        raise InvalidParameter(f"`{name}` must have at most {MAX_WORDS} words. Given: {count}")
    bounds = [0, *ends[:count].tolist()]
    for place, (begin, end) in enumerate(pairwise(bounds)):
        if not begin < end <= len(ids):
            raise InvalidParameter(
                f"`{name}` must have the end of each word in its second row, in increasing order from 1 to "
                f"{len(ids)}, then {PADDING}. Given: {end} at index {place} of {quote(ends.tolist())}"
            )
    if not padding[count:].all():
        raise InvalidParameter(
            f"`{name}` must have only {PADDING} after the end of the last word. Given: {quote(ends.tolist())}"
        )
    words = ids[: bounds[-1]].tolist()
    return [words[begin:end] for begin, end in pairwise(bounds)]
