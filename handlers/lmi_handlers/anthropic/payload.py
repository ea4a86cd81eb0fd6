"""The bodies of `/v1/messages` and `/v1/messages/count_tokens`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, Tag, field_validator, model_validator

from lmi_handlers.anthropic.blocks import BLOCKS_OF_ROLES, ContentBlock, as_blocks, check_blocks
from lmi_handlers.fields import tool_fields as chat
from lmi_handlers.fields.offered_tools import HOSTED, OWN, HostedTool, by_type
from lmi_handlers.fields.parameter_fields import RequestPart
from lmi_handlers.fields.passed import PassedFields, TemplateVariables
from lmi_handlers.fields.tool_schemas import check_tool_schema

CUSTOM = "custom"
EXAMPLE: dict[str, JsonValue] = {
    "model": "model",
    "max_tokens": 256,
    "system": "You are a helpful assistant.",
    "messages": [{"role": "user", "content": "What is deep learning?"}],
}
MIN_BUDGET = 1024


class AnthropicTool(RequestPart):
    """A tool that the client runs."""

    type: Literal["custom"] | None = Field(None, description="`custom` or null.")
    name: str = Field(min_length=1)
    description: str | None = None
    input_schema: dict[str, Any] | None = Field(None, description="The JSON schema of the input.")
    strict: bool | None = Field(None, description="Ignored: required calls always follow the schema.")

    @field_validator("input_schema")
    @classmethod
    def _a_json_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        check_tool_schema(schema or {})
        return schema

    @model_validator(mode="after")
    def _has_a_schema(self) -> "AnthropicTool":
        if self.input_schema is None:
            raise ValueError("must have an `input_schema`")
        return self

    @property
    def for_chat(self) -> chat.Tool:
        # Not validated again, because coding agents send dozens of large schemas with every message.
        function = chat.FunctionDefinition.model_construct(
            name=self.name,
            description=self.description,
            parameters={"type": "object", **(self.input_schema or {})},
            strict=self.strict,
        )
        return chat.Tool.model_construct(type="function", function=function)


OfferedTools = list[Annotated[Annotated[AnthropicTool, Tag(OWN)] | Annotated[HostedTool, Tag(HOSTED)], by_type(CUSTOM)]]


class AnthropicToolChoice(RequestPart):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = Field(None, min_length=1, description="With the type tool: the name of the tool to use.")
    disable_parallel_tool_use: bool | None = Field(None, description="Whether to allow at most one tool use.")

    @model_validator(mode="after")
    def _names_a_tool(self) -> "AnthropicToolChoice":
        if (self.type == "tool") != (self.name is not None):
            raise ValueError("must have the `name` of a tool if and only if its `type` is tool")
        return self

    @property
    def for_chat(self) -> chat.ToolChoice:
        match self.type:
            case "any":
                return chat.ToolChoice(type="required")
            case "tool":
                return chat.ToolChoice(type="function", function=chat.FunctionName(name=str(self.name)))
            case "auto" | "none" as kind:
                return chat.ToolChoice(type=kind)


Blocks = Annotated[list[ContentBlock], BeforeValidator(as_blocks, json_schema_input_type=str | list[ContentBlock])]


class AnthropicMessage(RequestPart):
    role: Literal["user", "assistant", "system"]
    content: Blocks = Field(description="A text, or a list of blocks.")

    @model_validator(mode="after")
    def _check_block_types(self) -> "AnthropicMessage":
        check_blocks(self.content, BLOCKS_OF_ROLES[self.role], f"a message of the role {self.role}")
        return self


class Thinking(RequestPart):
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = Field(None, ge=MIN_BUDGET, description="The maximum number of thinking tokens.")
    display: Literal["summarized", "omitted", "updates"] | None = Field(
        None, description="omitted: return the thinking blocks without their text."
    )

    @model_validator(mode="after")
    def _check_budget(self) -> "Thinking":
        if (self.type == "enabled") != (self.budget_tokens is not None):
            raise ValueError("must have `budget_tokens` if and only if its `type` is enabled")
        return self


class OutputFormat(RequestPart):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema", description="The JSON schema that the answer follows.")


class OutputConfig(RequestPart):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="Passed to the chat template as `reasoning_effort`."
    )
    format: OutputFormat | None = None


class Metadata(RequestPart):
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
    chat_template_kwargs: TemplateVariables | None = Field(
        None, description="Additional variables of the chat template."
    )

    @property
    def end_user(self) -> str | None:
        return self.metadata.user_id if self.metadata and self.user is None else self.user

    @field_validator("system")
    @classmethod
    def _texts(cls, system: list[ContentBlock] | None) -> list[ContentBlock] | None:
        check_blocks(system or (), BLOCKS_OF_ROLES["system"], "the system prompt")
        return system

    @model_validator(mode="after")
    def _message_fields_agree(self) -> "CountTokensRequest":
        if self.tool_choice is not None and self.tool_choice.type in ("any", "tool") and not self.tools:
            raise ValueError(f"`tool_choice` requires `tools`. Given: {self.tool_choice.type}")
        if self.stop is not None and self.stop_sequences is not None:
            raise ValueError("`stop_sequences` and `stop` are the same parameter; give one of them")
        if self.output_format is not None and self.output_config is not None and self.output_config.format is not None:
            raise ValueError("`output_config.format` and `output_format` mean the same; give one of them")
        if self.thinking_token_budget is not None and self.thinking is not None:
            raise ValueError("`thinking` and `thinking_token_budget` cannot be used together")
        return self


class MessagesRequest(CountTokensRequest):
    """A request of Anthropic's Messages API, with the parameters that vLLM adds."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    max_tokens: int | None = Field(ge=1, description="The maximum number of tokens to generate.")

    @field_validator("max_tokens")
    @classmethod
    def _require(cls, max_tokens: int | None) -> int | None:
        if max_tokens is None:
            raise ValueError("is required")
        return max_tokens

    @model_validator(mode="after")
    def _check_limits(self) -> "MessagesRequest":
        if (self.n or 1) > 1:
            raise ValueError(f"`n` must be 1, because an answer is one message. Given: {self.n}")
        budget = (self.thinking.budget_tokens if self.thinking else None) or 0
        # Where another engine continues after the prompt, requests have a `max_tokens` of 1, as in vLLM.
        only_prefills = (self.kv_transfer_params or {}).get("do_remote_decode")
        if self.max_tokens is not None and budget >= self.max_tokens and not only_prefills:
            raise ValueError(
                f"`thinking.budget_tokens` must be less than `max_tokens`, {self.max_tokens}. Given: {budget}"
            )
        return self
