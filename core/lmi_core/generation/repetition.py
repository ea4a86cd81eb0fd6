"""Detection of repetition, which ends a generation."""

from collections.abc import Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class RepetitionDetection(BaseModel):
    """Limits on repeated runs of tokens, which end a generation, as in vLLM."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    max_pattern_size: int = Field(
        0, ge=0, description="The maximum length of the repeated sequence, in tokens; 0 disables the check."
    )
    min_pattern_size: int = Field(
        0, ge=0, description="The minimum length of the repeated sequence, in tokens; 0 means 1."
    )
    min_count: int = Field(0, ge=0, description="How often the sequence must occur in a row; at least 2.")

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.min_pattern_size > self.max_pattern_size:
            raise ValueError(
                f"must have a `min_pattern_size` that is at most `max_pattern_size`, {self.max_pattern_size}. Given: "
                f"{self.min_pattern_size}"
            )
        if self.max_pattern_size and self.min_count < 2:
            raise ValueError(f"must have a `min_count` of at least 2. Given: {self.min_count}")
        return self


def ends_in_repetition(token_ids: Sequence[int], min_size: int, max_size: int, count: int) -> bool:
    """Return whether the sequence ends with a run of `min_size` to `max_size` tokens, `count` times in a row."""
    for size in range(max(min_size, 1), min(max_size, len(token_ids) // count) + 1):
        # Except in the first run, each token equals the token one run length before it.
        places = range(len(token_ids) - 1, len(token_ids) - 1 - size * (count - 1), -1)
        if all(token_ids[place] == token_ids[place - size] for place in places):
            return True
    return False
