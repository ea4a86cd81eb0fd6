"""The further generation parameters of LMI's vLLM and lmi-dist backends, with LMI's names and defaults."""

from typing import Annotated, Any, Self

import orjson
from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from lmi_core.chats.reasoning.budget import ReasoningBudget
from lmi_core.engines.repetition import RepetitionDetection
from lmi_core.engines.structural_tag import StructuralTag
from lmi_core.parameters import ALL_TOKENS, GenerationParameters, StopSequence

TokenId = Annotated[int, Field(ge=0)]
NOT_IN_SALT = frozenset("@/\\\0")  # as with vLLM: what its stores outside the engine make paths of
GUIDES = ("guided_choice", "guided_json", "guided_regex", "guided_grammar", "guided_structural_tag")


def _can_be_in_a_path(salt: str) -> str:
    if not NOT_IN_SALT.isdisjoint(salt):
        raise ValueError("must not hold @, /, \\ or NUL")
    return salt


CacheSalt = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_can_be_in_a_path)]


class ExtendedParameters(GenerationParameters):
    """The parameters of engines that support all of LMI's; a field's validation may use only earlier fields."""

    n: int = Field(1, ge=1, le=64, description="Sequences to answer with; more than 1 only without streaming.")
    best_of: int | None = Field(
        None, ge=1, le=64, description="Sequences to generate, of which the n likeliest are the answer. Default: n."
    )
    num_beams: int = Field(1, ge=1, le=64, description="Above 1: beam search; only without streaming.")
    length_penalty: float = Field(1.0, ge=-10, le=10, description="Beam search: above 0 favours longer sequences.")
    early_stopping: bool = Field(False, description="Beam search: stop once there are num_beams finished sequences.")
    min_p: float = Field(0.0, ge=0, le=1, description="Leave out tokens less likely than this times the likeliest.")
    typical_p: float = Field(1.0, gt=0, le=1, description="Sample from the tokens of about the expected surprise.")
    presence_penalty: float = Field(0.0, ge=-2, le=2, description="Makes tokens less likely that were generated.")
    frequency_penalty: float = Field(0.0, ge=-2, le=2, description="The same, each time that they were generated.")
    no_repeat_ngram_size: int = Field(0, ge=0, description="No run of this many tokens comes twice; 0: any may.")
    logit_bias: dict[str, float] | None = Field(None, description="Token id to what is added to its logit.")
    bad_sequences: list[StopSequence] | None = Field(
        None, max_length=64, description="Texts that never come, however they are split into tokens."
    )
    allowed_token_ids: list[TokenId] | None = Field(
        None, min_length=1, description="Only these token ids may be generated."
    )
    min_length: int = Field(
        0, ge=0, description="The fewest tokens to generate before the end-of-sequence token or a stop token."
    )
    repetition_detection: RepetitionDetection | None = Field(
        None, description="End the generation once it repeats a run of tokens so often in a row."
    )
    ignore_eos_token: bool = Field(False, description="Go on after the end-of-sequence token.")
    stop_token_ids: list[TokenId] | None = Field(None, max_length=64, description="Token ids that end the generation.")
    include_stop_str_in_output: bool = Field(False, description="Keep the stop sequence in the text.")
    skip_special_tokens: bool = Field(True, description="Leave special tokens out of the text.")
    spaces_between_special_tokens: bool = Field(True, description="Put blanks between special tokens in the text.")
    truncate: int | None = Field(None, ge=1, description="Use only so many of the prompt's last tokens.")
    logprobs: int | None = Field(None, ge=0, le=20, description="Give so many likeliest tokens in each token's place.")
    logprob_token_ids: list[TokenId] | None = Field(
        None,
        min_length=1,
        max_length=128,
        description="Give the generated token and these token ids in its place, instead of the likeliest.",
    )
    prompt_logprobs: int | None = Field(
        None, ge=ALL_TOKENS, le=20, description="The same for the prompt's tokens; -1: all of the vocabulary."
    )
    top_n_tokens: int | None = Field(None, ge=0, le=20, description="TGI's name for logprobs.")
    guided_choice: list[StopSequence] | None = Field(None, min_length=1, description="Answer with one of these texts.")
    guided_json: dict[str, Any] | None = Field(None, description="Answer with JSON of this JSON schema.")
    guided_regex: StopSequence | None = Field(None, description="Answer with a text of this regular expression.")
    guided_grammar: StopSequence | None = Field(None, description="Answer with a text of this EBNF grammar.")
    guided_structural_tag: StructuralTag | None = Field(
        None, description="Where certain texts begin, what follows them is of a JSON schema or another form."
    )
    guided_reasoning: list[str] | None = Field(
        None,
        min_length=2,
        description="With a guide: free text may come before it, which the first of these begins and another ends.",
    )
    reasoning_budget: ReasoningBudget | None = Field(
        None, description="The most tokens of reasoning, after which its end is forced, with the ids of its markers."
    )

    cache_salt: CacheSalt | None = Field(
        None, description="What is computed for the prompt is shared only with requests of the same salt."
    )

    @field_validator("best_of")
    @classmethod
    def _no_fewer_than_n(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < info.data.get("n", 1):
            raise ValueError(f"must be at least `n`, which is {info.data['n']}")
        return value

    @field_validator("logit_bias")
    @classmethod
    def _token_ids(cls, value: dict[str, float] | None) -> dict[str, float] | None:
        for token_id in value or ():
            if not (token_id.isascii() and token_id.isdigit()):
                raise ValueError(f"must map token ids to numbers; {token_id!r} is no token id")
        return value

    @field_validator("guided_json")
    @classmethod
    def _not_too_deep(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        try:
            orjson.dumps(value)
        except TypeError:  # orjson reads deeper nesting than it writes
            raise ValueError("must be a JSON schema that is nested less deeply") from None
        return value

    @model_validator(mode="after")
    def _one_guide(self) -> Self:
        given = [name for name in GUIDES if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"`{given[0]}` and `{given[1]}` exclude each other")
        return self

    @model_validator(mode="after")
    def _no_more_than_beams(self) -> Self:
        given = {"n": self.n, "best_of": self.best_of or 1}
        name = max(given, key=lambda name: given[name])
        if given[name] > self.num_beams > 1:
            raise ValueError(f"`{name}` must be at most `num_beams`, {self.num_beams}. Given: {given[name]}")
        return self

    @model_validator(mode="after")
    def _of_samples_alone(self) -> Self:
        for name in ("logprob_token_ids", "repetition_detection"):
            if getattr(self, name) is not None and self.num_beams > 1:
                raise ValueError(f"`{name}` and `num_beams` above 1 exclude each other")
        return self

    @property
    def num_sequences(self) -> int:
        return max(self.n, self.best_of or 1, self.num_beams)

    @property
    def num_answers(self) -> int:
        return self.n if "n" in self.model_fields_set else self.num_sequences

    @property
    def max_prompt_tokens(self) -> int | None:
        return self.truncate

    @property
    def wants_prefill(self) -> bool:
        return self.decoder_input_details or self.prompt_logprobs is not None

    @property
    def best_first(self) -> bool:
        return self.num_beams > 1

    @property
    def num_top_tokens(self) -> int:
        return 0 if self.logprob_token_ids else max(self.logprobs or 0, self.top_n_tokens or 0)

    @property
    def num_prompt_top_tokens(self) -> int:
        return self.prompt_logprobs or 0


# A request's parameters before validation by a backend, which may support fewer, or others.
ParametersObject = Annotated[
    dict[str, Any], WithJsonSchema(ExtendedParameters.model_json_schema() | {"additionalProperties": True})
]
