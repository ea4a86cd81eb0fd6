"""The fields of vLLM's chats and completions that are passed to its engine unchanged, or that name a request."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from lmi_core.errors import InvalidPayload
from lmi_core.generation.parameters import ALL_TOKENS
from lmi_core.handler import Call
from lmi_core.payloads.payload import quote
from lmi_core.served_model import ServedModel
from lmi_handlers.fields.guides import Guide
from lmi_handlers.fields.request_ids import REQUEST_ID_HEADER
from lmi_handlers.fields.sampling import CallFields

logger = logging.getLogger(__name__)

VLLM_FIELDS = "vllm_fields"  # the parameter of vLLM's backends that contains these fields
TRANSFERS = ("kv_transfer_params", "ec_transfer_params")


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
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="Additional variables of the chat template.")
    mm_processor_kwargs: dict[str, Any] | None = Field(
        None, description="Arguments of the model's image processor; only vLLM, with option.trust_request_mm_kwargs."
    )
    media_io_kwargs: dict[str, dict[str, Any]] | None = Field(
        None, description="How images are read, under `image`; only vLLM, with option.trust_request_mm_kwargs."
    )
