"""Finish reasons and log probabilities in vLLM's form, for dialects derived from its API."""

from collections.abc import Sequence
from typing import Any

from lmi_core.generation.output import FinishReason, Token
from lmi_core.generation.parameters import ALL_TOKENS
from lmi_core.generation.tokenizer import Tokenizer

JsonObject = dict[str, Any]

MIN_LOG_PROB = -9999.0

FINISH_REASONS: dict[FinishReason | None, str] = {
    "length": "length",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "error": "error",
    "abort": "abort",
    None: "None",
}


def logprobs(tokens: Sequence[Token]) -> list[dict[str, Any]]:
    """Return the log probabilities of each token and of the most likely ones at its position, by token id."""
    return [_place(token) for token in tokens]


def prompt_logprobs(tokens: Sequence[Token], count: int, tokenizer: Tokenizer) -> list[JsonObject | None]:
    """Return the prompt's log probabilities in vLLM's form: each token, then the `count` most likely at its
    position.
    """
    return [_prompt_place(token, None if count == ALL_TOKENS else count, tokenizer) for token in tokens]


def _prompt_place(token: Token, count: int | None, tokenizer: Tokenizer) -> JsonObject | None:
    if token.log_prob is None:  # the first token has no context
        return None
    ranks = {top.id: rank for rank, top in enumerate(token.top_tokens or (), start=1)}
    likeliest = [top for top in (token.top_tokens or ())[:count] if top.id != token.id]
    return {
        str(each.id): {
            "logprob": finite(each.log_prob),
            "rank": each.rank or ranks.get(each.id),
            # The `text` of special tokens is empty.
            "decoded_token": tokenizer.token_bytes(each.id).decode(errors="replace") if each.special else each.text,
        }
        for each in [token, *likeliest]
    }


def finite(log_prob: float | None) -> float | None:
    """Return the log probability, at least -9999 as in vLLM, because JSON has no minus infinity."""
    return log_prob if log_prob is None else max(log_prob, MIN_LOG_PROB)


def _place(token: Token) -> dict[str, Any]:
    ranks: dict[int, tuple[Token, int | None]] = {
        top.id: (top, rank) for rank, top in enumerate(token.top_tokens or (), start=1)
    }
    ranks.setdefault(token.id, (token, token.rank))
    return {
        str(token_id): {"logprob": found.log_prob, "rank": rank, "decoded_token": found.text}
        for token_id, (found, rank) in ranks.items()
    }
