"""Sampling and call fields that OpenAI's chats and completions share, with vLLM's additions."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from lmi_core.calls.served_model import ServedModel
from lmi_core.payloads.exact_numbers import ExactNumbers
from lmi_handlers.fields.guides import Guide, GuideFields
from lmi_handlers.fields.vocabulary import VLLM_NAMES, refuse_hidden_sequences, translate

NAMES = {
    **VLLM_NAMES,
    "max_completion_tokens": "max_new_tokens",
    "stop": "stop_sequences",
    "truncate_prompt_tokens": "truncate",
}
# Values without effect, dropped since clients send them to any backend, also one without the parameter.
NEUTRAL = {
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "n": 1,
    "stop": [],
    "logit_bias": {},
    "top_p": 1,
    "min_p": 0,
    "min_tokens": 0,
    "ignore_eos": False,
    "include_stop_str_in_output": False,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "repetition_penalty": 1,
    "typical_p": 1,
    "no_repeat_ngram_size": 0,
    "stop_token_ids": [],
    "bad_words": [],
    "length_penalty": 1,
    "early_stopping": False,
}
DEFAULT_TEMPERATURE = 1.0
SEEDS = 2**63
AS_MANY_AS_FIT = -1  # as `truncate_prompt_tokens`
NO_BUDGET = -1  # as `thinking_token_budget`

Penalty = Annotated[float, Field(ge=-2, le=2)]


class SamplingFields(GuideFields):
    """Fields that are generation parameters; the backend checks the bounds that are not declared here."""

    model_config = ConfigDict(extra="forbid", strict=True)

    frequency_penalty: Penalty | None = Field(
        None, description="Above 0 makes tokens less likely each time they are generated."
    )
    presence_penalty: Penalty | None = Field(
        None, description="Above 0 makes tokens that were generated before less likely."
    )
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        None, description="Map of token ids to the value added to their logits."
    )
    max_tokens: int | None = Field(None, ge=0, description="The maximum number of tokens to generate.")
    n: int | None = Field(None, ge=1, description="The number of choices for each prompt. Default: 1.")
    seed: int | None = Field(
        None, description="Seed of the random choices: the same seed gives the same text. Default: random."
    )
    stop: str | list[str] | None = Field(None, description="A string, or several, that end generation.")
    temperature: float | None = Field(
        None, ge=0, le=2, description="Sampling temperature; 0 means greedy decoding. Default: 1."
    )
    top_p: float | None = Field(
        None, le=1, description="Top-p sampling: the probability mass of the most likely tokens to keep."
    )

    top_k: int | None = Field(None, description="Top-k sampling: the number of most likely tokens to keep.")
    min_p: float | None = Field(
        None, description="Drop tokens whose probability is below this fraction of the most likely token's."
    )
    typical_p: float | None = Field(
        None, description="Locally typical sampling: the probability mass of the tokens to keep."
    )
    repetition_penalty: float | None = Field(None, description="Above 1 makes tokens that occurred before less likely.")
    no_repeat_ngram_size: int | None = Field(None, description="No sequence of this many tokens may occur twice.")
    min_tokens: int | None = Field(None, description="The minimum number of tokens before the end-of-sequence token.")
    ignore_eos: bool | None = Field(None, description="Continue generating after the end-of-sequence token.")
    stop_token_ids: list[int] | None = Field(None, description="Token ids that end generation.")
    bad_words: list[str] | None = Field(None, description="Strings that must not be generated.")
    allowed_token_ids: list[int] | None = Field(None, description="Only these token ids may be generated.")
    include_stop_str_in_output: bool | None = Field(None, description="Keep the stop sequence in the text.")
    skip_special_tokens: bool | None = Field(None, description="Omit special tokens from the text. Default: true.")
    spaces_between_special_tokens: bool | None = Field(
        None, description="Put spaces between special tokens in the text. Default: true."
    )
    truncate_prompt_tokens: int | None = Field(None, description="Truncate the prompt to its last tokens, this many.")
    best_of: int | None = Field(
        None,
        ge=1,
        description="The number of sequences to generate, of which the n most likely are returned. Default: n.",
    )
    length_penalty: float | None = Field(
        None, description="Beam search: a length penalty above 0 favours longer sequences."
    )
    early_stopping: bool | None = Field(None, description="Beam search: stop as soon as enough sequences are finished.")

    use_beam_search: bool | None = Field(None, description="Use beam search with `best_of` beams.")

    def translated(self, further: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return LMI's parameters, and the client's name of each. Raise InvalidPayload where one is given twice.

        `further` holds the dialect's fields beside these.
        """
        given = {name: getattr(self, name) for name in PARAMETERS} | dict(further)
        if isinstance(self.stop, str):
            given["stop"] = [self.stop]
        if self.seed is not None:
            given["seed"] = self.seed % SEEDS  # OpenAI allows negative seeds
        if self.best_of == (self.n or 1):
            given["best_of"] = None
        asked = {name: value for name, value in given.items() if value is not None and value != NEUTRAL.get(name)}
        parameters, spellings = translate(asked, NAMES)
        parameters["do_sample"] = parameters.setdefault("temperature", DEFAULT_TEMPERATURE) > 0
        if self.use_beam_search:
            self._search_beams(parameters, spellings)
        elif "best_of" in parameters:
            parameters["n"] = self.n or 1  # otherwise all sequences would be the answer
        return parameters, spellings

    def _search_beams(self, parameters: dict[str, Any], spellings: dict[str, str]) -> None:
        parameters |= {"do_sample": False, "n": self.n or 1}
        parameters["num_beams"] = parameters.pop("best_of", None) or self.n or 1
        spellings["num_beams"] = "best_of" if self.best_of else "n"


_NO_PARAMETERS = {*GuideFields.model_fields, "use_beam_search"}
PARAMETERS = tuple(name for name in SamplingFields.model_fields if name not in _NO_PARAMETERS)


class StreamOptions(ExactNumbers):
    model_config = ConfigDict(extra="ignore", strict=True)

    include_usage: bool | None = Field(False, description="End the stream with the token counts.")
    continuous_usage_stats: bool | None = Field(
        False, description="With `include_usage`: return the token counts in each chunk too."
    )


class CallFields(SamplingFields):
    """The sampling fields, and those that concern the call and its answer."""

    model: str | None = Field(None, description="A model of `GET /v1/models`; may be omitted if only one is served.")
    stream: bool | None = Field(None, description="Stream the answer as server-sent events.")
    stream_options: StreamOptions | None = Field(None, description="Options of the stream; only with `stream`.")
    user: str | None = Field(
        None, description="The end user, who is written to the server's log with the request's id."
    )
    truncation_side: Literal["left", "right"] | None = Field(
        None, description="The side of the prompt that `truncate_prompt_tokens` cuts off; only left."
    )
    return_tokens_as_token_ids: bool | None = Field(
        None, description="Write the tokens of log probabilities as `token_id:` followed by the id."
    )

    thinking_token_budget: int | None = Field(
        None,
        ge=NO_BUDGET,
        description="The maximum number of reasoning tokens, after which the end is forced; -1 means no limit.",
    )
    logprob_token_ids: list[int] | None = Field(
        None, max_length=128, description="With `logprobs`: return these token ids instead of the most likely."
    )

    @model_validator(mode="after")
    def _named_tokens_are_log_probabilities(self) -> "CallFields":
        if not self.logprob_token_ids:
            return self
        log_probs = getattr(self, "logprobs", None)
        if log_probs is None or log_probs is False:  # 0 asks for log probabilities too
            raise ValueError("`logprob_token_ids` requires `logprobs`")
        if self.use_beam_search:
            raise ValueError("`logprob_token_ids` and `use_beam_search` cannot be used together")
        if getattr(self, "echo", None):
            raise ValueError(
                "`logprob_token_ids` and `echo` cannot be used together: they are not available for prompts"
            )
        return self

    @model_validator(mode="after")
    def _options_of_a_stream(self) -> "CallFields":
        if self.stream_options is not None and not self.stream:
            raise ValueError("`stream_options` requires `stream`: true")
        return self

    @model_validator(mode="after")
    def _cut_at_the_left(self) -> "CallFields":
        if self.truncation_side == "right" and self.truncate_prompt_tokens is not None:
            raise ValueError("`truncation_side` must be left, which keeps the last tokens of a prompt. Given: 'right'")
        return self

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        return (
            self.include_usage and self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)
        )

    def parameters(
        self, model: ServedModel, further: Mapping[str, Any], guide: Guide | None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return LMI's parameters and the client's name of each. Raise InvalidPayload where fields contradict."""
        if self.truncate_prompt_tokens == AS_MANY_AS_FIT:
            further = {**further, "truncate_prompt_tokens": model.backend.max_length - 1}
        parameters, names = self.translated(further)
        if guide is not None:
            parameters[guide.parameter] = guide.value
            names[guide.parameter] = guide.field
        if self.stream:
            refuse_hidden_sequences(parameters, names)
        if self.logprob_token_ids:
            parameters["logprob_token_ids"] = self.logprob_token_ids
        names["reasoning_budget"] = "thinking_token_budget"
        return parameters, names
