"""The table of generation parameters, with LMI's names and defaults: for all backends, and for engines."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from lmi_core.generation.reasoning_budget import ReasoningBudget
from lmi_core.generation.repetition import RepetitionDetection
from lmi_core.generation.structural_tag import StructuralTag
from lmi_core.payloads.payload import quote
from lmi_core.payloads.tolerant_payload import ExactNumbers
from lmi_core.payloads.written_json import WrittenJson

NOT_IN_SALT = frozenset("@/\\\0")  # as in vLLM: its external stores use the salt in paths
SAMPLING_NAMES = frozenset({"temperature", "top_k", "top_p", "min_p", "typical_p"})  # without effect unless `do_sample`
GUIDES = ("guided_choice", "guided_json", "guided_regex", "guided_grammar", "guided_structural_tag")
TokenId = Annotated[int, Field(ge=0)]

RANDOM_SEED = -1  # many clients send this value
SEED_STEP = 0x9E3779B97F4A7C15  # odd, so that no two sequences of a request get the same seed
ALL_TOKENS = -1  # a number of top tokens that means the whole vocabulary

MAX_DIGITS = 18  # of a token id; larger ids do not fit in 64 bits
MAX_STOPS = 64  # maximum number of stop sequences, or of bad sequences
MAX_STOP_LENGTH = 1024  # characters of each; searching for it takes time for every generated token

NonEmpty = Annotated[str, Field(min_length=1)]
StopSequence = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]


def as_list(value: object) -> object:
    """Return a single text as a list."""
    return [value] if isinstance(value, str) else value


StopSequences = Annotated[
    list[StopSequence] | None,
    Field(max_length=MAX_STOPS),
    BeforeValidator(as_list, json_schema_input_type=StopSequence | list[StopSequence] | None),
]


def by_token_ids(value: dict[str, float] | None) -> dict[str, float] | None:
    """Return a `logit_bias` by token id. Raise ValueError for a key that is not a token id."""
    for token_id in value or ():
        if not (token_id.isascii() and token_id.isdigit() and len(token_id) <= MAX_DIGITS):
            raise ValueError(f"must map token ids to numbers. Given: {quote(token_id)}")
    return value


def seed_of(seed: int, index: int) -> int:
    """Return the seed of one of a request's sequences; the first one has the request's own seed."""
    return (seed + index * SEED_STEP) % 2**63


class GenerationParameters(ExactNumbers):
    """The parameters of every backend; subclass this for more parameters or other defaults.

    Types are those of JSON; equal numbers and booleans of other types, such as 30.0 or "30" for 30, are accepted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    do_sample: bool = Field(
        False, description="Sample; false means greedy decoding, regardless of other sampling parameters."
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
        1.0, gt=0, le=100, description="Values above 1 make tokens that already occurred less likely."
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
        """The number of sequences in the answer, the most likely ones."""
        return self.num_sequences

    @property
    def max_prompt_tokens(self) -> int | None:
        """The number of tokens that a longer prompt is truncated to; None means no truncation."""
        return None

    @property
    def keeps_first_tokens(self) -> bool:
        """Whether a truncated prompt keeps its first tokens rather than its last."""
        return False

    @property
    def wants_prefill(self) -> bool:
        """Whether the first step carries the prompt's tokens."""
        return self.decoder_input_details

    @property
    def best_first(self) -> bool:
        """Whether the backend ranks a prompt's sequences itself, best first."""
        return False

    @property
    def includes_stop(self) -> bool:
        """Whether the text includes the stop sequence that ends it."""
        return False

    @property
    def num_top_tokens(self) -> int:
        """The number of top log probs for each generated token."""
        return 0

    @property
    def num_prompt_top_tokens(self) -> int:
        """The number of top log probs for each prompt token; ALL_TOKENS means the whole vocabulary."""
        return 0


def _check_salt(salt: str) -> str:
    if not NOT_IN_SALT.isdisjoint(salt):
        raise ValueError("must not contain @, /, \\ or NUL")
    return salt


CacheSalt = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_check_salt)]


class EngineParameters(GenerationParameters):
    """The parameters common to LMI's engines: torch, vLLM and TensorRT-LLM."""

    n: int = Field(1, ge=1, le=64, description="The number of sequences to return; more than 1 only without streaming.")
    num_beams: int = Field(
        1, ge=1, le=64, description="The number of beams; above 1 means beam search, only without streaming."
    )
    length_penalty: float = Field(
        1.0, ge=-10, le=10, description="Beam search: a length penalty above 0 favours longer sequences."
    )
    presence_penalty: float = Field(
        0.0, ge=-2, le=2, description="Values above 0 make tokens that were already generated less likely."
    )
    frequency_penalty: float = Field(
        0.0, ge=-2, le=2, description="Values above 0 make tokens less likely each time they are generated."
    )
    no_repeat_ngram_size: int = Field(
        0, ge=0, description="No sequence of this many tokens may occur twice; 0 disables it."
    )
    logit_bias: dict[str, float] | None = Field(
        None, description="Map of token ids to the value added to their logits."
    )
    bad_sequences: list[StopSequence] | None = Field(
        None,
        max_length=MAX_STOPS,
        description="Strings that must not be generated, however they are split into tokens.",
    )
    min_length: int = Field(
        0,
        ge=0,
        description="The minimum number of tokens to generate before the end-of-sequence token or a stop token.",
    )
    ignore_eos_token: bool = Field(False, description="Continue generating after the end-of-sequence token.")
    stop_token_ids: list[TokenId] | None = Field(None, max_length=64, description="Token ids that end generation.")
    logprobs: int | None = Field(None, ge=0, le=20, description="How many most likely tokens to return per position.")

    _biases = field_validator("logit_bias")(by_token_ids)

    @property
    def num_sequences(self) -> int:
        return max(self.n, self.num_beams)

    @property
    def num_answers(self) -> int:
        return self.n if "n" in self.model_fields_set else self.num_sequences

    @property
    def best_first(self) -> bool:
        return self.num_beams > 1

    @property
    def num_top_tokens(self) -> int:
        return self.logprobs or 0


class ExtendedParameters(EngineParameters):
    """The parameters of engines that support all of LMI's; a field's validation may use only earlier fields."""

    best_of: int | None = Field(
        None,
        ge=1,
        le=64,
        description="The number of sequences to generate, of which the n most likely are returned. Default: n.",
    )
    early_stopping: bool = Field(False, description="Beam search: stop as soon as enough sequences are finished.")
    min_p: float = Field(
        0.0, ge=0, le=1, description="Drop tokens whose probability is below this fraction of the most likely token's."
    )
    typical_p: float = Field(
        1.0, gt=0, le=1, description="Locally typical sampling: the probability mass of the tokens to keep."
    )
    allowed_token_ids: list[TokenId] | None = Field(
        None, min_length=1, description="The only token ids that may be generated."
    )
    repetition_detection: RepetitionDetection | None = Field(
        None, description="Stop when a sequence of tokens repeats too often."
    )
    include_stop_str_in_output: bool = Field(False, description="Keep the stop sequence in the text.")
    skip_special_tokens: bool = Field(True, description="Omit special tokens from the text.")
    spaces_between_special_tokens: bool = Field(True, description="Put spaces between special tokens in the text.")
    truncate: int | None = Field(None, ge=1, description="Truncate the prompt to this many tokens.")
    truncation_side: Literal["left", "right"] = Field(
        "left", description="The side of the prompt that `truncate` cuts off; right keeps the first tokens."
    )
    logprob_token_ids: list[TokenId] | None = Field(
        None,
        min_length=1,
        max_length=128,
        description="Return the log probabilities of the generated token and of these token ids, instead of the "
        "most likely.",
    )
    prompt_logprobs: int | None = Field(
        None,
        ge=ALL_TOKENS,
        le=20,
        description="The number of most likely tokens to return at each position of the prompt; -1 means the whole "
        "vocabulary.",
    )
    top_n_tokens: int | None = Field(None, ge=0, le=20, description="TGI's name for logprobs.")
    guided_choice: list[NonEmpty] | None = Field(
        None, min_length=1, description="Constrain the output to one of these strings."
    )
    guided_json: dict[str, Any] | None = Field(
        None, description="Constrain the output to JSON that matches this JSON schema."
    )
    guided_regex: NonEmpty | None = Field(
        None, description="Constrain the output to strings that match this regular expression."
    )
    guided_grammar: NonEmpty | None = Field(
        None, description="Constrain the output to strings of this EBNF or Lark grammar."
    )
    guided_structural_tag: StructuralTag | None = Field(
        None, description="Structural tag: after certain markers the output follows a JSON schema or another format."
    )
    guided_reasoning: list[str] | None = Field(
        None,
        min_length=2,
        description="With structured output: markers of the free text that may precede it; the first begins the "
        "free text, the others end it.",
    )
    reasoning_budget: ReasoningBudget | None = Field(
        None,
        description="Limit the reasoning: the maximum number of tokens, and the token ids of the markers that begin "
        "and end it.",
    )

    cache_salt: CacheSalt | None = Field(
        None, description="Share the prefix cache only with requests that have the same salt."
    )

    @field_validator("best_of")
    @classmethod
    def _check_best_of(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < info.data.get("n", 1):
            raise ValueError(f"must be at least `n`, which is {info.data['n']}")
        return value

    @field_validator("guided_json")
    @classmethod
    def _check_schema_depth(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        try:
            return None if value is None else WrittenJson(value)
        except TypeError:
            raise ValueError("must be a JSON schema with less nesting") from None

    @field_validator("guided_structural_tag")
    @classmethod
    def _keep_text(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if value is None else WrittenJson(value)

    @model_validator(mode="after")
    def _one_guide(self) -> Self:
        given = [name for name in GUIDES if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"`{given[0]}` and `{given[1]}` cannot be used together")
        return self

    @model_validator(mode="after")
    def _check_num_sequences(self) -> Self:
        if self.num_beams == 1:
            return self
        given = {"n": self.n, "best_of": self.best_of or 1}
        name = max(given, key=lambda name: given[name])
        if given[name] > self.num_beams:
            raise ValueError(f"`{name}` must be at most `num_beams`, {self.num_beams}. Given: {given[name]}")
        return self

    @model_validator(mode="after")
    def _check_beam_search(self) -> Self:
        for name in ("logprob_token_ids", "repetition_detection"):
            if self.num_beams > 1 and getattr(self, name) is not None:
                raise ValueError(f"`{name}` and `num_beams` above 1 cannot be used together")
        return self

    @property
    def num_sequences(self) -> int:
        return max(self.n, self.best_of or 1, self.num_beams)

    @property
    def max_prompt_tokens(self) -> int | None:
        return self.truncate

    @property
    def keeps_first_tokens(self) -> bool:
        return self.truncation_side == "right"

    @property
    def wants_prefill(self) -> bool:
        return self.decoder_input_details or self.prompt_logprobs is not None

    @property
    def includes_stop(self) -> bool:
        return self.include_stop_str_in_output

    @property
    def num_top_tokens(self) -> int:
        return 0 if self.logprob_token_ids else max(self.logprobs or 0, self.top_n_tokens or 0)

    @property
    def num_prompt_top_tokens(self) -> int:
        return self.prompt_logprobs or 0


class _ParametersSchema:
    """The JSON schema of the parameters; by default, any object is allowed."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(ExtendedParameters.__pydantic_core_schema__)
        handler.resolve_ref_schema(schema)["additionalProperties"] = True
        return schema


# A request's parameters before a backend validates them; the backend may support fewer, or different ones.
ParametersObject = Annotated[dict[str, Any], _ParametersSchema]
