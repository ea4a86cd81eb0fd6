"""What vLLM calls finish reasons and log probabilities, for the dialects that grew around it."""

from collections.abc import Sequence
from typing import Any

from lmi_core.generation import FinishReason, Token

FINISH_REASONS: dict[FinishReason | None, str] = {
    "length": "length",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "error": "error",
    "abort": "abort",
    None: "None",
}


def logprobs(tokens: Sequence[Token]) -> list[dict[str, Any]]:
    """For each token, itself and the likeliest in its place, by token id."""
    return [_place(token) for token in tokens]


def _place(token: Token) -> dict[str, Any]:
    ranks: dict[int, tuple[Token, int | None]] = {
        top.id: (top, rank) for rank, top in enumerate(token.top_tokens or (), start=1)
    }
    ranks.setdefault(token.id, (token, None))
    return {
        str(token_id): {"logprob": found.log_prob, "rank": rank, "decoded_token": found.text}
        for token_id, (found, rank) in ranks.items()
    }
