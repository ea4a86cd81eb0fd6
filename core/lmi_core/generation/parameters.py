"""The generation parameters that every rolling-batch backend takes, with LMI's names and defaults."""

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, field_validator

from lmi_core.payloads.exact_numbers import ExactNumbers
from lmi_core.payloads.payload import shown

RANDOM_SEED = -1  # the form in which many clients send it
SEED_STEP = 0x9E3779B97F4A7C15  # odd, so that no two sequences of a request get the same seed
ALL_TOKENS = -1  # a number of top tokens that stands for the whole vocabulary

MAX_DIGITS = 18  # of a token id; more do not fit in 64 bits
MAX_STOPS = 64  # sequences that end a generation, or must not be in it
MAX_STOP_LENGTH = 1024  # characters of one; the search for it takes time for each generated token

NonEmpty = Annotated[str, Field(min_length=1)]
StopSequence = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


StopSequences = Annotated[
    list[StopSequence] | None,
    Field(max_length=MAX_STOPS),
    BeforeValidator(_as_list, json_schema_input_type=StopSequence | list[StopSequence] | None),
]


def by_token_ids(value: dict[str, float] | None) -> dict[str, float] | None:
    """Return a `logit_bias`. Raise ValueError for a key that is no token id."""
    for token_id in value or ():
        if not (token_id.isascii() and token_id.isdigit() and len(token_id) <= MAX_DIGITS):
            raise ValueError(f"must map token ids to numbers. Given: {shown(token_id)}")
    return value


def seed_of(seed: int, index: int) -> int:
    """Return the seed of one of the sequences that a request asks for: the request's own for the first one."""
    return (seed + index * SEED_STEP) % 2**63


class GenerationParameters(ExactNumbers):
    """The parameters that every backend takes; one that takes more, or has other defaults, subclasses this.

    Types are those of JSON; the same number or boolean written as another type, as 30.0 or "30" for 30, is taken too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    do_sample: bool = Field(
        False, description="Sample; false means greedy decoding, whatever the other sampling parameters are."
    )
    seed: int | None = Field(
        None,
        ge=RANDOM_SEED,
        lt=2**63,
        description="Seed of the random choices: the same seed gives the same text. Default, and -1: a random seed.",
    )
    temperature: float = Field(
        1.0, ge=0, le=100, description="Sampling temperature, which divides the logits; 0 means greedy decoding."
    )
    repetition_penalty: float = Field(
        1.0, gt=0, le=100, description="Above 1 makes tokens that occurred before less likely."
    )
    top_k: int = Field(
        0, ge=-1, description="Top-k sampling: the number of most likely tokens to keep; 0 and -1 mean all."
    )
    top_p: float = Field(
        1.0, gt=0, le=1, description="Top-p sampling: the probability mass of the most likely tokens to keep."
    )
    max_new_tokens: int = Field(30, ge=1, description="The maximum number of tokens to generate.")
    details: bool = Field(False, description="Return `details`: the finish reason, the token count and the tokens.")
    return_full_text: bool = Field(False, description="Return the prompt followed by the generated text.")
    stop_sequences: StopSequences = Field(
        None,
        description=f"A string, or at most {MAX_STOPS}, each of at most {MAX_STOP_LENGTH} characters, that end "
        "generation; they are not part of the answer.",
    )
    decoder_input_details: bool = Field(
        False, description="With `details`: return `details.prefill`, the prompt's tokens."
    )

    @field_validator("seed")
    @classmethod
    def _random(cls, value: int | None) -> int | None:
        return None if value == RANDOM_SEED else value

    @property
    def num_sequences(self) -> int:
        """The number of sequences that the backend yields for one prompt."""
        return 1

    @property
    def num_answers(self) -> int:
        """The number of those sequences, the most likely ones, that the answer has."""
        return self.num_sequences

    @property
    def max_prompt_tokens(self) -> int | None:
        """The number of trailing tokens that a longer prompt is truncated to; None truncates nothing."""
        return None

    @property
    def wants_prefill(self) -> bool:
        """Whether the first step carries the prompt's tokens."""
        return self.decoder_input_details

    @property
    def best_first(self) -> bool:
        """Whether the backend yields a prompt's sequences in its own ranking, best first."""
        return False

    @property
    def includes_stop(self) -> bool:
        """Whether the stop sequence that ends a text stays in it."""
        return False

    @property
    def num_top_tokens(self) -> int:
        """The number of top log probs for each generated token."""
        return 0

    @property
    def num_prompt_top_tokens(self) -> int:
        """The number of top log probs for each prompt token; ALL_TOKENS means the whole vocabulary."""
        return 0
