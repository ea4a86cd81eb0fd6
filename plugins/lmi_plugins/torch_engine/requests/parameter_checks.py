"""Checks of parameters against a model's vocabulary."""

from collections.abc import Iterable

from lmi_core.errors import InvalidParameter
from lmi_plugins.torch_engine.messages.requests import SamplingParameters

FLOAT32 = 4  # bytes


def check_parameters(parameters: SamplingParameters, vocabulary: int) -> None:
    """Raise InvalidParameter for values that do not fit the vocabulary, or each other."""
    _check_ids("`logit_bias`", parameters.logit_bias, vocabulary)
    for name, sequences in (
        ("`bad_sequences`", parameters.bad_sequences),
        ("`stop_token_ids`", parameters.stop_token_sequences),
    ):
        if not all(sequences):
            raise InvalidParameter(f"{name} must each contain at least one token id")
        _check_ids(name, (token_id for sequence in sequences for token_id in sequence), vocabulary)
    _check_ids("the end-of-sequence tokens", parameters.eos_token_ids or (), vocabulary)
    _check_ids("`allowed_token_ids`", parameters.allowed_ids or (), vocabulary)
    _check_ids("`logprob_token_ids`", parameters.top_ids, vocabulary)
    if parameters.reasoning_limit is not None:
        markers = parameters.reasoning_limit.starts + parameters.reasoning_limit.ends
        _check_ids("`reasoning_budget`", (token_id for marker in markers for token_id in marker), vocabulary)
    bias = parameters.embedding_bias
    if bias is not None and len(bias) != vocabulary * FLOAT32:
        raise InvalidParameter(
            f"the embedding bias must have {vocabulary} numbers, one for each token. Given: {len(bias) / FLOAT32:g}"
        )
    if parameters.num_prompt_top_tokens and not parameters.prompt_log_probs:
        raise InvalidParameter("the most likely tokens of the prompt require its log probabilities")
    if parameters.num_samples < 1:
        raise InvalidParameter(f"the number of sequences must be at least 1. Given: {parameters.num_samples}")


def _check_ids(name: str, ids: Iterable[int], vocabulary: int) -> None:
    for token_id in ids:
        if not 0 <= token_id < vocabulary:
            raise InvalidParameter(f"{name} must contain token ids from 0 to {vocabulary - 1}. Given: {token_id}")
