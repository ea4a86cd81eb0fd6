"""Checks of the tensors of requests against a model."""

from lmi_core.errors import ContextLengthExceeded, InvalidParameter
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest
from lmi_plugins.trtllm.requests.word_lists import read_words


def check_model(request: InferenceRequest, vocabulary: int, max_length: int) -> None:
    """Raise InvalidParameter or ContextLengthExceeded for a request that this model cannot serve."""
    tensors = request.tensors
    table = tensors.get("prompt_embedding_table")
    virtual = 0 if table is None else table.shape[-2]
    _check_ids("input_ids", request.input_ids, vocabulary + virtual)
    _check_ids("draft_input_ids", request.ids("draft_input_ids"), vocabulary)
    _check_ids("end_id", [token_id for token_id in request.ids("end_id") if token_id != -1], vocabulary)
    for name in ("bad_words_list", "stop_words_list"):
        if name in tensors:
            words = read_words(name, tensors[name])
            _check_ids(name, [token_id for word in words for token_id in word], vocabulary)
    for name in ("embedding_bias", "draft_logits"):
        if name in tensors and tensors[name].shape[-1] != vocabulary:
            raise InvalidParameter(
                f"`{name}` must have rows of {vocabulary} numbers, the model's vocabulary."
                f" Given: {tensors[name].shape[-1]}"
            )
    added = 0 if max(request.input_ids) >= vocabulary else virtual  # the engine puts an unused table before the input
    length, output = len(request.input_ids) + added, request.output_length
    if length + output > max_length:
        raise ContextLengthExceeded(
            f"`request_output_len` must be at most {max(max_length - length, 0)} after a prompt of {length} tokens (the"
            f" model's context is {max_length}). Given: {output}"
        )


def _check_ids(name: str, ids: list[int], vocabulary: int) -> None:
    for token_id in ids:
        if not 0 <= token_id < vocabulary:
            raise InvalidParameter(f"`{name}` must contain token ids from 0 to {vocabulary - 1}. Given: {token_id}")
