"""Checks of the tensors of requests against a model."""

from typing import TYPE_CHECKING, Any

from lmi_core.errors import ContextLengthExceeded, InvalidParameter
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest
from lmi_plugins.trtllm.requests.translation import NO_END

if TYPE_CHECKING:
    import numpy


def check_model(request: InferenceRequest, vocabulary: int, max_length: int) -> None:
    """Raise InvalidParameter or ContextLengthExceeded for a request that this model cannot serve."""
    tensors = request.tensors
    table = tensors.get("prompt_embedding_table")
    virtual = 0 if table is None else table.shape[-2]
    _check_ids("input_ids", request.ids("input_ids"), vocabulary + virtual)
    _check_ids("draft_input_ids", request.ids("draft_input_ids"), vocabulary)
    end_id = request.ids("end_id")
    _check_ids("end_id", end_id[end_id != NO_END], vocabulary)
    for name, words in request.words.items():
        _check_ids(name, request.ids(name)[: sum(map(len, words))], vocabulary)
    for name in ("embedding_bias", "draft_logits"):
        if name in tensors and tensors[name].shape[-1] != vocabulary:
            raise InvalidParameter(
                f"`{name}` must have rows of {vocabulary} numbers, the model's vocabulary."
                f" Given: {tensors[name].shape[-1]}"
            )
    # The engine puts an unused table before the input.
    added = 0 if request.ids("input_ids").max() >= vocabulary else virtual
    length, output = request.input_length + added, request.output_length
    if length + output > max_length:
        raise ContextLengthExceeded(
            f"`request_output_len` must be at most {max(max_length - length, 0)} after a prompt of {length} tokens (the"
            f" model's context is {max_length}). Given: {output}"
        )


def _check_ids(name: str, ids: "numpy.ndarray[Any, Any]", vocabulary: int) -> None:
    wrong = ids[(ids < 0) | (ids >= vocabulary)]
    if len(wrong):
        raise InvalidParameter(f"`{name}` must contain token ids from 0 to {vocabulary - 1}. Given: {wrong[0]}")
