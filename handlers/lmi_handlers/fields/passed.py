"""Fields that OpenAI's chats and completions share, with vLLM's additions: passed to the engine, or about the call."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from lmi_core.errors import InvalidPayload
from lmi_core.generation.parameters import ALL_TOKENS, GUIDES
from lmi_core.handler import Call
from lmi_core.payloads.payload import quote
from lmi_core.payloads.tolerant_payload import ExactNumbers
from lmi_core.served_model import ServedModel
from lmi_core.tolerance import is_neutral
from lmi_handlers.fields.guides import Guide, GuideFields
from lmi_handlers.fields.parameter_fields import all_names, with_parameters
from lmi_handlers.fields.request_headers import REQUEST_ID_HEADER
from lmi_handlers.fields.vocabulary import VLLM_NAMES, refuse_hidden_sequences, translate

logger = logging.getLogger(__name__)

VLLM_FIELDS = "vllm_fields"  # the parameter of vLLM's backends that contains these fields
TRANSFERS = ("kv_transfer_params", "ec_transfer_params")
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

# Arguments of apply_chat_template itself, which are not variables of a template.
TEMPLATE_CALL = ("chat_template", "conversation", "messages", "return_dict", "return_tensors", "tokenize", "tools")

Penalty = Annotated[float, Field(ge=-2, le=2)]


def _check_variables(given: dict[str, Any]) -> dict[str, Any]:
    for name in TEMPLATE_CALL:
        if name in given:
            raise ValueError(f"must contain only variables of the chat template, and `{name}` is not one")
    return given


TemplateVariables = Annotated[dict[str, Any], AfterValidator(_check_variables)]


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


class AnswerFields(CallFields):
    """A request's fields, including those for token ids and the prompt's log probabilities."""

    prompt_logprobs: int | None = Field(
        None,
        ge=ALL_TOKENS,
        description="Return the prompt's log probabilities, with this many most likely tokens at each position; -1 "
        "means the whole vocabulary. Not with `stream`.",
    )
    return_token_ids: bool | None = Field(None, description="Return the token ids of the prompt and of the choices.")

    @model_validator(mode="after")
    def _check_stream(self) -> Self:
        if self.stream and self.prompt_logprobs:
            raise ValueError(
                "`prompt_logprobs` must be 0 or null with `stream`, whose format has no field for them. Given: "
                f"{self.prompt_logprobs}"
            )
        return self

    @property
    def prompt_log_probs(self) -> int | None:
        """The number of top tokens for the prompt; None in a stream, where vLLM accepts only 0 and ignores it."""
        return None if self.stream else self.prompt_logprobs

    def refuse_unshown(self, *names: str) -> None:
        """Raise InvalidPayload if one of the named fields is set, because another form of answer cannot contain it."""
        for name in names:
            value = getattr(self, name)
            if value not in (None, {}) and value is not False:
                raise InvalidPayload(
                    f"`{name}` must be null unless the answer is in OpenAI's format, because other formats have no "
                    f"field for it. Given: {value}"
                )


def _check_request_id(name: str) -> str:
    if not (name.isascii() and name.isprintable()):
        raise ValueError("must be printable ASCII")
    return name


RequestId = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_check_request_id)]


class NamedRequest(BaseModel):
    """A request whose body may have its id and its end user."""

    request_id: RequestId | None = Field(
        None,
        description="The id of the request in its answer, in the log and for aborting it; the header x-request-id "
        "overrides it.",
    )

    @property
    def end_user(self) -> str | None:
        user: str | None = getattr(self, "user", None)
        return user

    def identify(self, call: Call) -> Call:
        """Return the call with the request's own id, unless a header sets one, and log the end user, if given."""
        in_header = call.headers.get(REQUEST_ID_HEADER, "").startswith(call.request_id)
        call = call if self.request_id is None or in_header else replace(call, request_id=self.request_id)
        if self.end_user is not None:
            logger.info("request %s was sent by user %s", call.request_id, quote(self.end_user))
        return call


class PassedFields(NamedRequest, AnswerFields):
    """Fields that are passed to the engine: vLLM's own, and the cache salt."""

    only_vllm: ClassVar[tuple[str, ...]] = ("vllm_xargs", *TRANSFERS)

    priority: int | None = Field(
        None,
        ge=-(2**63),
        lt=2**63,
        description="With vLLM's priority scheduling: lower values are scheduled first. Only vLLM.",
    )
    vllm_xargs: dict[str, Any] | None = Field(
        None, description="Additional arguments for custom logits processors and models. Only vLLM."
    )
    kv_transfer_params: dict[str, Any] | None = Field(
        None, description="Parameters of the engine's KV connector, which returns its own in the answer. Only vLLM."
    )
    ec_transfer_params: dict[str, Any] | None = Field(
        None, description="Parameters of the engine's EC connector, for encoder outputs. Only vLLM."
    )

    def parameters(
        self, model: ServedModel, further: Mapping[str, Any], guide: Guide | None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        parameters, names = super().parameters(model, further, guide)
        detection = parameters.pop("repetition_detection", None)
        if detection is not None and detection.max_pattern_size:  # 0 disables it
            parameters["repetition_detection"] = detection.model_dump()
        if given := {name: value for name in self.only_vllm if (value := getattr(self, name))}:
            for name, value in given.items() if VLLM_FIELDS not in model.backend.parameters_type.model_fields else ():
                raise InvalidPayload(
                    f"`{name}` must be null or {{}}: only the vllm backend supports it, and this model uses the "
                    f"{model.backend.name} backend. Given: {quote(value)}"
                )
        if self.priority and VLLM_FIELDS in model.backend.parameters_type.model_fields:
            given["priority"] = self.priority  # only a hint for other backends
        if given:
            parameters[VLLM_FIELDS] = given
            names[VLLM_FIELDS] = ""
        return parameters, names


class ChatFields(PassedFields):
    """The fields that chats and responses share."""

    only_vllm: ClassVar[tuple[str, ...]] = (*PassedFields.only_vllm, "mm_processor_kwargs", "media_io_kwargs")

    parallel_tool_calls: bool | None = Field(
        None, description="Whether one answer may contain several calls. Default: true."
    )
    include_reasoning: bool | None = Field(None, description="Whether to return the reasoning. Default: true.")
    chat_template_kwargs: TemplateVariables | None = Field(
        None, description="Additional variables of the chat template."
    )
    mm_processor_kwargs: dict[str, Any] | None = Field(
        None, description="Arguments of the model's image processor; only vLLM, with option.trust_request_mm_kwargs."
    )
    media_io_kwargs: dict[str, dict[str, Any]] | None = Field(
        None, description="How images are read, under `image`; only vLLM, with option.trust_request_mm_kwargs."
    )
