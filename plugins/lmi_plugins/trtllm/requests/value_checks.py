"""Checks of the values of a request's tensors that no model could accept, and the words in its lists."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from lmi_core.errors import InvalidParameter
from lmi_core.generation.tensors import Tensor
from lmi_core.payloads.payload import quote


class Bounds(NamedTuple):
    """The bounds of a single number."""

    least: float
    most: float = math.inf
    excluded: bool = False  # whether the minimum itself is excluded

    def hold(self, value: float) -> bool:
        above = value > self.least if self.excluded else value >= self.least
        return above and value <= self.most and math.isfinite(value)

    def __str__(self) -> str:
        if self.least == -math.inf:
            return "a finite number"
        least = f"{'above' if self.excluded else 'at least'} {self.least:g}"
        return least if self.most == math.inf else f"{least} and at most {self.most:g}"


BOUNDS: Mapping[str, Bounds] = {
    "request_output_len": Bounds(1),
    "beam_width": Bounds(1),
    "temperature": Bounds(0, 100),
    "runtime_top_k": Bounds(0),
    "runtime_top_p": Bounds(0, 1),
    "len_penalty": Bounds(-10, 10),
    "repetition_penalty": Bounds(0, 100, excluded=True),
    "min_length": Bounds(0),
    "presence_penalty": Bounds(-math.inf),
    "frequency_penalty": Bounds(-math.inf),
    "no_repeat_ngram_size": Bounds(0),
    "end_id": Bounds(-1),
    "pad_id": Bounds(-1),
    "prompt_vocab_size": Bounds(1),
}
TOGETHER = (  # the first has no effect without the second
    ("prompt_embedding_table", "prompt_vocab_size"),
    ("prompt_vocab_size", "prompt_embedding_table"),
    ("lora_weights", "lora_config"),
    ("lora_config", "lora_weights"),
    ("lora_weights", "lora_task_id"),
    ("draft_logits", "draft_input_ids"),
)
NUMBERS = ("embedding_bias", "prompt_embedding_table", "lora_weights", "draft_logits")  # must not contain NaN
OF_LOGITS = ("embedding_bias", "draft_logits")  # -inf excludes a token
AT_LEAST_ONE = ("input_ids", "draft_input_ids", "lora_config", "prompt_embedding_table")  # rows, or numbers


def check_values(tensors: Mapping[str, Tensor]) -> None:
    """Raise InvalidParameter for values that no model could accept."""
    for name, bounds in BOUNDS.items():
        if name in tensors and not bounds.hold(value := tensors[name].array().item()):
            raise InvalidParameter(f"`{name}` must be {bounds}. Given: {value:g}")
    for name, other in TOGETHER:
        if name in tensors and other not in tensors:
            raise InvalidParameter(f"`{name}` requires `{other}`, which is not given")
    for name in AT_LEAST_ONE:
        if name in tensors and not tensors[name].data:
            raise InvalidParameter(f"`{name}` must not be empty. Given: shape {list(tensors[name].shape)}")
    for name in NUMBERS:
        if name in tensors:
            _check_numbers(name, tensors[name])
    _check_sizes(tensors)
    _check_beams(tensors)


def _check_numbers(name: str, tensor: Tensor) -> None:
    import numpy

    array = tensor.array()
    worst = numpy.isnan(array) | (array == math.inf) if name in OF_LOGITS else ~numpy.isfinite(array)
    if worst.any():
        raise InvalidParameter(f"`{name}` must contain finite numbers. Given: {array[worst][0]}")
    if name in OF_LOGITS and not numpy.isfinite(array).any(axis=-1).all():
        raise InvalidParameter(f"`{name}` must allow at least one token. Given: -inf for all tokens")


def _check_sizes(tensors: Mapping[str, Tensor]) -> None:
    """Raise InvalidParameter for tensors whose lengths do not match those of others."""
    for name, axis, other in (("draft_logits", 0, "draft_input_ids"), ("lora_weights", 0, "lora_config")):
        if name in tensors and tensors[name].shape[axis] != tensors[other].shape[0]:
            raise InvalidParameter(
                f"`{name}` must have as many rows as `{other}`, {tensors[other].shape[0]}."
                f" Given: {tensors[name].shape[axis]}"
            )
    if "prompt_embedding_table" in tensors:
        rows, size = tensors["prompt_embedding_table"].shape[-2], tensors["prompt_vocab_size"].array().item()
        if rows != size:
            raise InvalidParameter(
                f"`prompt_vocab_size` must be {rows}, the number of rows of the table. Given: {size}"
            )


def _check_beams(tensors: Mapping[str, Tensor]) -> None:
    """Raise InvalidParameter for parameters that beam search does not support."""
    width = _number(tensors, "beam_width", 1)
    if width == 1:
        return
    excluded = {
        "streaming": _number(tensors, "streaming", 0) != 0,
        "runtime_top_k": _number(tensors, "runtime_top_k", 0) > 1,
        "runtime_top_p": _number(tensors, "runtime_top_p", 0) > 0 and _number(tensors, "runtime_top_k", 0) != 1,
        "temperature": _number(tensors, "temperature", 1) != 1,
        "draft_input_ids": "draft_input_ids" in tensors,
    }
    for name, given in excluded.items():
        if given:
            raise InvalidParameter(
                f"`{name}` and a `beam_width` above 1 cannot be used together. Given: "
                f"{tensors[name].array().ravel()[0]} and {width}"
            )


def _number(tensors: Mapping[str, Tensor], name: str, default: float) -> float:
    value: float = tensors[name].array().item() if name in tensors else default
    return value


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
