"""Sampling and call fields that OpenAI's chats and completions share, with vLLM's additions."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lmi_core.calls.served_model import ServedModel
from lmi_handlers.fields.guides import Guide, GuideFields
from lmi_handlers.fields.vocabulary import refuse_hidden_sequences, translate

NAMES = {
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "min_tokens": "min_length",
    "stop": "stop_sequences",
    "bad_words": "bad_sequences",
    "ignore_eos": "ignore_eos_token",
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

    frequency_penalty: Penalty | None = Field(None, description="Above 0: tokens get less likely each time they come.")
    presence_penalty: Penalty | None = Field(None, description="Above 0: tokens get less likely once they have come.")
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        None, description="Token id to what is added to its logit."
    )
    max_tokens: int | None = Field(None, ge=0, description="The most tokens to generate.")
    n: int | None = Field(None, ge=1, description="Choices to answer with, for each prompt. Default: 1.")
    seed: int | None = Field(None, description="The same seed gives the same text. Default: random.")
    stop: str | list[str] | None = Field(None, description="A text, or several, that end the generation.")
    temperature: float | None = Field(None, ge=0, le=2, description="0 is greedy decoding. Default: 1.")
    top_p: float | None = Field(None, le=1, description="Sample from the likeliest tokens of this probability.")

    top_k: int | None = Field(None, description="Sample from the k likeliest tokens.")
    min_p: float | None = Field(None, description="Leave out tokens less likely than this times the likeliest.")
    typical_p: float | None = Field(None, description="Sample from the tokens of about the expected surprise.")
    repetition_penalty: float | None = Field(None, description="Above 1: tokens seen before get less likely.")
    no_repeat_ngram_size: int | None = Field(None, description="No run of this many tokens comes twice.")
    min_tokens: int | None = Field(None, description="The fewest tokens before the end-of-sequence token.")
    ignore_eos: bool | None = Field(None, description="Go on after the end-of-sequence token.")
    stop_token_ids: list[int] | None = Field(None, description="Token ids that end the generation.")
    bad_words: list[str] | None = Field(None, description="Texts that never come.")
    allowed_token_ids: list[int] | None = Field(None, description="Only these token ids may be generated.")
    include_stop_str_in_output: bool | None = Field(None, description="Keep the stop text in the answer.")
    skip_special_tokens: bool | None = Field(None, description="Leave special tokens out of the text. Default: true.")
    spaces_between_special_tokens: bool | None = Field(None, description="Blanks between them. Default: true.")
    truncate_prompt_tokens: int | None = Field(None, description="Keep only this many of the prompt's last tokens.")
    best_of: int | None = Field(
        None, ge=1, description="Sequences to generate, of which the n likeliest are the choices. Default: n."
    )
    length_penalty: float | None = Field(None, description="Beam search: above 0 favours longer sequences.")
    early_stopping: bool | None = Field(None, description="Beam search: stop once there are enough finished sequences.")

    use_beam_search: bool | None = Field(None, description="Beam search, of `best_of` beams.")

    def translated(self, further: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return LMI's parameters, and the client's name of each. Raise InvalidPayload where one is given twice.

        `further` holds the dialect's fields beside these.
        """
        other = {*GuideFields.model_fields, "use_beam_search"}
        names = [name for name in SamplingFields.model_fields if name not in other]
        given = {name: getattr(self, name) for name in names} | dict(further)
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


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    include_usage: bool | None = Field(False, description="End the stream with the counts of tokens.")
    continuous_usage_stats: bool | None = Field(False, description="With `include_usage`: in each chunk too.")


class CallFields(SamplingFields):
    """The sampling fields, and those that concern the call and its answer."""

    model: str | None = Field(None, description="One of `GET /v1/models`; may be left out where there is only one.")
    stream: bool | None = Field(None, description="Answer with server-sent events, token by token.")
    stream_options: StreamOptions | None = Field(None, description="Only with `stream`.")
    user: str | None = Field(None, description="Who asks: goes to the server's log, beside the request's id.")
    truncation_side: Literal["left", "right"] | None = Field(
        None, description="Which end of the prompt `truncate_prompt_tokens` cuts off: only left."
    )
    return_tokens_as_token_ids: bool | None = Field(
        None, description="Write the tokens of log probabilities as `token_id:` and their ids."
    )

    thinking_token_budget: int | None = Field(
        None, ge=NO_BUDGET, description="The most tokens of reasoning, whose end is then forced. -1: no limit."
    )
    logprob_token_ids: list[int] | None = Field(
        None, max_length=128, description="With `logprobs`: these token ids instead of the likeliest."
    )

    @model_validator(mode="after")
    def _named_tokens_are_log_probabilities(self) -> "CallFields":
        if not self.logprob_token_ids:
            return self
        log_probs = getattr(self, "logprobs", None)
        if log_probs is None or log_probs is False:  # 0 asks for log probabilities too
            raise ValueError("`logprob_token_ids` is only for `logprobs`")
        if self.use_beam_search:
            raise ValueError("`logprob_token_ids` and `use_beam_search` exclude each other")
        if getattr(self, "echo", None):
            raise ValueError("`logprob_token_ids` and `echo` exclude each other: nothing tells them of a prompt")
        return self

    @model_validator(mode="after")
    def _options_of_a_stream(self) -> "CallFields":
        if self.stream_options is not None and not self.stream:
            raise ValueError("`stream_options` is only for `stream`: true")
        return self

    @model_validator(mode="after")
    def _cut_at_the_left(self) -> "CallFields":
        if self.truncation_side == "right" and self.truncate_prompt_tokens is not None:
            raise ValueError("`truncation_side` must be left: the last tokens of a prompt are kept. Given: 'right'")
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
