"""Sampling and call fields that OpenAI's chats and completions share, with vLLM's additions."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from lmi_core.generation.parameters import GUIDES
from lmi_core.payloads.tolerant_payload import ExactNumbers
from lmi_core.served_model import ServedModel
from lmi_core.tolerance import is_neutral
from lmi_handlers.fields.guides import Guide, GuideFields
from lmi_handlers.fields.parameter_fields import all_names, with_parameters
from lmi_handlers.fields.vocabulary import VLLM_NAMES, refuse_hidden_sequences, translate

# Parameters that these requests do not have, or have in another form.
IN_ANOTHER_FORM = frozenset(
    {
        *("details", "return_full_text", "decoder_input_details", "do_sample", "num_beams"),
        *("logprobs", "top_n_tokens", "logprob_token_ids", "prompt_logprobs"),
        *(*GUIDES, "guided_reasoning", "reasoning_budget"),
    }
)
OWN_NAMES = {**VLLM_NAMES, "stop": "stop_sequences", "truncate_prompt_tokens": "truncate"}
NAMES = all_names(OWN_NAMES, IN_ANOTHER_FORM)
# Parameters passed on even if they are neutral, because the defaults of backends differ.
ALWAYS_SENT = frozenset({"best_of", "max_new_tokens", "temperature", "top_k"})
DEFAULT_TEMPERATURE = 1.0
SEEDS = 2**63
AS_MANY_AS_FIT = -1  # as a value of `truncate_prompt_tokens`
NO_BUDGET = -1  # as a value of `thinking_token_budget`

Penalty = Annotated[float, Field(ge=-2, le=2)]


@with_parameters(NAMES)
class SamplingFields(GuideFields):
    """The generation parameters; the backend checks bounds that are not declared here."""

    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    max_tokens: int | None = Field(None, ge=0)
    n: int | None = Field(None, ge=1, description="The number of choices for each prompt. Default: 1.")
    best_of: int | None = Field(None, ge=1)
    seed: int | None = Field(
        None, description="Seed of the random choices: the same seed gives the same text. Default: random."
    )
    stop: str | list[str] | None = None
    temperature: float | None = Field(
        None, ge=0, le=2, description="Sampling temperature; 0 means greedy decoding. Default: 1."
    )
    top_p: float | None = Field(None, le=1)
    truncate_prompt_tokens: int | None = None
    truncation_side: Literal["left", "right"] | None = None
    use_beam_search: bool | None = Field(None, description="Use beam search with `best_of` beams.")

    def translated(self, further: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return LMI's parameters, and the client's name of each.

        Raise InvalidPayload if one is given twice. `further` contains the dialect's other fields.
        """
        given = {name: getattr(self, name) for name in NAMES} | dict(further)
        if isinstance(self.stop, str):
            given["stop"] = [self.stop]
        if self.seed is not None:
            given["seed"] = self.seed % SEEDS  # OpenAI allows negative seeds
        if self.best_of == (self.n or 1):
            given["best_of"] = None
        parameters, spellings = translate(given, {**NAMES, "max_completion_tokens": "max_new_tokens"})
        for name in parameters.keys() - ALWAYS_SENT:
            if is_neutral(name, parameters[name]):
                del parameters[name]  # backends without this parameter then accept the request
        parameters["do_sample"] = parameters.setdefault("temperature", DEFAULT_TEMPERATURE) > 0
        if self.use_beam_search:
            parameters |= {"do_sample": False, "n": self.n or 1}
            parameters["num_beams"] = parameters.pop("best_of", None) or self.n or 1
            spellings["num_beams"] = "best_of" if self.best_of else "n"
        elif "best_of" in parameters:
            parameters["n"] = self.n or 1  # otherwise, the answer would contain all sequences
        return parameters, spellings


class StreamOptions(ExactNumbers):
    model_config = ConfigDict(extra="ignore", strict=True)

    include_usage: bool | None = Field(False, description="End the stream with the token counts.")
    continuous_usage_stats: bool | None = Field(
        False, description="With `include_usage`: return the token counts in each chunk too."
    )


class CallFields(SamplingFields):
    """The sampling fields, and those of the call and its answer."""

    model: str | None = Field(None, description="A model of `GET /v1/models`; may be omitted if only one is served.")
    stream: bool | None = Field(None, description="Stream the answer as server-sent events.")
    stream_options: StreamOptions | None = Field(None, description="Options of the stream; only with `stream`.")
    user: str | None = Field(None, description="The end user, written to the server's log with the request's id.")
    return_tokens_as_token_ids: bool | None = Field(
        None, description="Write the tokens of log probabilities as `token_id:` followed by the id."
    )

    thinking_token_budget: int | None = Field(
        None,
        ge=NO_BUDGET,
        description="The maximum number of reasoning tokens, after which the reasoning is ended; -1 means no limit.",
    )
    logprob_token_ids: list[int] | None = Field(
        None, max_length=128, description="With `logprobs`: return these token ids instead of the most likely."
    )

    @model_validator(mode="after")
    def _call_fields_agree(self) -> "CallFields":
        if self.stream_options is not None and not self.stream:
            raise ValueError("`stream_options` requires `stream`: true")
        if not self.logprob_token_ids:
            return self
        log_probs = getattr(self, "logprobs", None)
        if log_probs is None or log_probs is False:  # 0 also requests log probabilities
            raise ValueError("`logprob_token_ids` requires `logprobs`")
        if self.use_beam_search:
            raise ValueError("`logprob_token_ids` and `use_beam_search` cannot be used together")
        if getattr(self, "echo", None):
            raise ValueError(
                "`logprob_token_ids` and `echo` cannot be used together: they are not available for prompts"
            )
        return self

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        options = self.stream_options
        return options is not None and bool(options.include_usage and options.continuous_usage_stats)

    def parameters(
        self, model: ServedModel, further: Mapping[str, Any], guide: Guide | None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return LMI's parameters and the client's name of each.

        Raise InvalidPayload if fields contradict each other.
        """
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
