"""The bodies of `/v1/messages` and `/v1/messages/count_tokens`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, field_validator, model_validator

from lmi_handlers.anthropic.blocks import BLOCKS_OF_ROLES, ContentBlock, as_blocks, check_blocks
from lmi_handlers.anthropic.tool_fields import AnthropicToolChoice, OfferedTools
from lmi_handlers.chat.request import TEMPLATE_CALL
from lmi_handlers.fields.passed import PassedFields

EXAMPLE: dict[str, JsonValue] = {
    "model": "model",
    "max_tokens": 256,
    "system": "You are a helpful assistant.",
    "messages": [{"role": "user", "content": "What is deep learning?"}],
}
MIN_BUDGET = 1024

Blocks = Annotated[list[ContentBlock], BeforeValidator(as_blocks, json_schema_input_type=str | list[ContentBlock])]


class AnthropicMessage(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    role: Literal["user", "assistant", "system"]
    content: Blocks = Field(description="A text, or a list of blocks.")

    @model_validator(mode="after")
    def _blocks_of_its_role(self) -> "AnthropicMessage":
        check_blocks(self.content, BLOCKS_OF_ROLES[self.role], f"a message of the role {self.role}")
        return self


class Thinking(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = Field(None, ge=MIN_BUDGET, description="The maximum number of thinking tokens.")
    display: Literal["summarized", "omitted", "updates"] | None = Field(
        None, description="omitted: return the thinking blocks without their text."
    )

    @model_validator(mode="after")
    def _budget_where_enabled(self) -> "Thinking":
        if (self.type == "enabled") != (self.budget_tokens is not None):
            raise ValueError("must have `budget_tokens` if and only if its `type` is enabled")
        return self


class OutputFormat(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema", description="The JSON schema that the answer follows.")


class OutputConfig(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="Passed to the chat template as `reasoning_effort`."
    )
    format: OutputFormat | None = None


class Metadata(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    user_id: str | None = Field(None, description="The end user, written to the server's log.")


class CountTokensRequest(PassedFields):
    """The prompt of a message; accepts any body of `/v1/messages`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"messages": EXAMPLE["messages"]}]})

    messages: list[AnthropicMessage] = Field(min_length=1, description="The conversation so far.")
    system: Blocks | None = Field(None, description="The system prompt: a text, or blocks of text.")
    max_tokens: int | None = Field(None, ge=1, description="The maximum number of tokens to generate.")
    stop_sequences: list[str] | None = Field(None, description="Strings that end the generation.")
    tools: OfferedTools | None = Field(None, description="The tools that the model may use.")
    tool_choice: AnthropicToolChoice | None = Field(None, description="auto, any, none, or the tool to use.")
    thinking: Thinking | None = Field(None, description="Whether and how long the model thinks first.")
    output_config: OutputConfig | None = Field(None, description="The reasoning effort and the format of the answer.")
    output_format: OutputFormat | None = Field(None, description="The older name of `output_config.format`.")
    metadata: Metadata | None = Field(None, description="The end user.")
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="Additional variables of the chat template.")

    @field_validator("system")
    @classmethod
    def _texts(cls, system: list[ContentBlock] | None) -> list[ContentBlock] | None:
        check_blocks(system or (), BLOCKS_OF_ROLES["system"], "the system prompt")
        return system

    @model_validator(mode="after")
    def _choice_among_tools(self) -> "CountTokensRequest":
        if self.tool_choice is not None and self.tool_choice.type in ("any", "tool") and not self.tools:
            raise ValueError(f"`tool_choice` requires `tools`. Given: {self.tool_choice.type}")
        return self

    @model_validator(mode="after")
    def _one_name_of_a_field(self) -> "CountTokensRequest":
        if self.stop is not None and self.stop_sequences is not None:
            raise ValueError("`stop_sequences` and `stop` are the same parameter; give one of them")
        if self.output_format is not None and self.output_config is not None and self.output_config.format is not None:
            raise ValueError("`output_config.format` and `output_format` mean the same; give one of them")
        if self.thinking_token_budget is not None and self.thinking is not None:
            raise ValueError("`thinking` and `thinking_token_budget` cannot be used together")
        return self

    @model_validator(mode="after")
    def _names_for_the_template(self) -> "CountTokensRequest":
        for name in TEMPLATE_CALL:
            if name in (self.chat_template_kwargs or {}):
                raise ValueError(f"`chat_template_kwargs` must contain names for the template. Given: {name}")
        return self


class MessagesRequest(CountTokensRequest):
    """A request of Anthropic's Messages API, with the parameters that vLLM adds."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    max_tokens: int | None = Field(ge=1, description="The maximum number of tokens to generate.")

    @field_validator("max_tokens")
    @classmethod
    def _given(cls, max_tokens: int | None) -> int | None:
        if max_tokens is None:
            raise ValueError("is required")
        return max_tokens

    @model_validator(mode="after")
    def _one_message(self) -> "MessagesRequest":
        if (self.n or 1) > 1:
            raise ValueError(f"`n` must be 1, because an answer is one message. Given: {self.n}")
        return self

    @model_validator(mode="after")
    def _thinks_less_than_it_writes(self) -> "MessagesRequest":
        budget = self.thinking.budget_tokens if self.thinking else None
        if budget is None or self._only_prefills:
            return self
        if self.max_tokens is not None and budget >= self.max_tokens:
            raise ValueError(
                f"`thinking.budget_tokens` must be less than `max_tokens`, {self.max_tokens}. Given: {budget}"
            )
        return self

    @property
    def _only_prefills(self) -> bool:
        """Whether another engine continues after the prompt; such requests have a `max_tokens` of 1, as in vLLM."""
        return bool((self.kv_transfer_params or {}).get("do_remote_decode"))
