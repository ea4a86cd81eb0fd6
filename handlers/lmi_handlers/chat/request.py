"""The chat completion request that OpenAI's dialect and LMI's share."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from lmi_handlers.chat.messages import Message
from lmi_handlers.fields.parameter_fields import RequestPart
from lmi_handlers.fields.passed import ChatFields
from lmi_handlers.fields.tool_fields import (
    AnyTool,
    FunctionDefinition,
    FunctionName,
    GivenToolChoice,
    Tool,
    ToolChoice,
    ToolNames,
)

OLDER_NAMES = ToolNames(tools="functions", choice="function_call")  # of `tools` and `tool_choice`
UNLIMITED = -1  # as LM Studio and llama.cpp have it
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
TokenLimit = Literal[-1] | Annotated[int, Field(ge=1)] | None

EXAMPLE: dict[str, JsonValue] = {
    "messages": [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "What is deep learning?"},
    ],
    "logprobs": True,
    "top_logprobs": 1,
    "max_tokens": 256,
}


def _as_tool_choice(value: object) -> object:
    if value in ("none", "auto"):
        return {"type": value}
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return {"type": "function", "function": value}
    raise ValueError("must be none, auto or an object with the `name` of the function to call")


GivenFunctionCall = Annotated[
    ToolChoice, BeforeValidator(_as_tool_choice, json_schema_input_type=Literal["none", "auto"] | FunctionName)
]


class ReasoningEffort(RequestPart):
    effort: Annotated[Effort | None, BeforeValidator(lambda value: value or None)] = Field(
        None, description="The same as `reasoning_effort`, which takes precedence."
    )
    enabled: bool | None = Field(None, description="false means the effort none, unless there is an `effort`.")
    exclude: bool | None = Field(None, description="true is the same as `include_reasoning`: false.")
    max_tokens: int | None = Field(None, ge=0, description="The same as `thinking_token_budget`.")


def _as_effort(given: object) -> object:
    """Return an object for an effort without one, or for a switch."""
    if isinstance(given, bool):
        return {"enabled": given}
    return {"effort": given} if isinstance(given, str) else given


def _as_limit(given: object) -> object:
    return None if given == UNLIMITED else given


class ChatRequest(ChatFields):
    """An OpenAI chat completion request, with the parameters that vLLM and LMI add."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    image_member: ClassVar[str] = ".image_url.url"  # the path of an image's URL in its part
    messages_field: ClassVar[str] = "messages"  # the client's name of it

    messages: list[Message] = Field(min_length=1, description="The conversation so far.")
    max_completion_tokens: int | None = Field(None, ge=1, description="The newer name of `max_tokens`.")
    max_tokens: Annotated[int | None, BeforeValidator(_as_limit, json_schema_input_type=TokenLimit)] = Field(
        None, ge=1, description="The maximum number of tokens to generate. Default, and -1: as many as fit."
    )
    logprobs: bool | None = Field(None, description="Return the log probability of each token.")
    top_logprobs: int | None = Field(
        None, ge=0, le=20, description="With `logprobs`: the number of most likely tokens to return at each position."
    )
    tools: list[AnyTool] | None = Field(None, description="The tools that the model may call.")
    tool_choice: GivenToolChoice | None = Field(None, description="none, auto, required or the tool to call.")
    functions: list[FunctionDefinition] | None = Field(None, description="The older form of `tools`, for one call.")
    function_call: GivenFunctionCall | None = Field(None, description="The older form of `tool_choice`.")
    reasoning_effort: Effort | None = Field(
        None, description="Passed to the chat template as `reasoning_effort`; none also as `enable_thinking`: false."
    )
    reasoning: Annotated[ReasoningEffort | None, BeforeValidator(_as_effort)] = Field(
        None, description="Ollama's and OpenRouter's form of `reasoning_effort`."
    )
    chat_template: str | None = Field(
        None,
        min_length=1,
        description="A Jinja template; only with option.trust_request_chat_template.",
    )
    documents: list[dict[str, Any]] | None = Field(None, description="Passed to the chat template as `documents`.")
    add_generation_prompt: bool | None = Field(
        None, description="Whether the prompt ends with the beginning of an answer. Default: true."
    )
    continue_final_message: bool | None = Field(None, description="Continue the last message.")
    add_special_tokens: bool | None = Field(
        None, description="Add special tokens in addition to those of the chat template. Default: false."
    )
    return_prompt_text: bool | None = Field(None, description="Return the prompt that the chat template produced.")
    echo: bool | None = Field(
        None, description="Return the last message, if it is the assistant's, followed by the answer."
    )

    @model_validator(mode="after")
    def _take_reasoning(self) -> "ChatRequest":
        if self.reasoning is not None:
            if self.include_reasoning is None and self.reasoning.exclude:
                self.include_reasoning = False
            if self.thinking_token_budget is None:
                self.thinking_token_budget = self.reasoning.max_tokens
        return self

    @model_validator(mode="after")
    def _chat_fields_agree(self) -> "ChatRequest":
        if self.top_logprobs and not self.logprobs:
            raise ValueError("`top_logprobs` requires `logprobs`: true")
        if self.continue_final_message and self.add_generation_prompt:
            raise ValueError("`continue_final_message` and `add_generation_prompt` cannot be used together")
        if self.continue_final_message and self.messages[-1].role != "assistant":
            raise ValueError("`continue_final_message` requires a last message whose role is assistant")
        if self.functions and self.tools:
            raise ValueError(
                "`functions` and `tools` cannot be used together: `functions` is the older form of `tools`"
            )
        if self.functions and self.tool_choice is not None:
            raise ValueError("`tool_choice` requires `tools`: with `functions` use `function_call`")
        if self.tools and self.function_call is not None:
            raise ValueError("`function_call` requires `functions`: with `tools` use `tool_choice`")
        return self

    def part_path(self, message: int, part: int) -> str:
        """Return the path of a part of a message's content in the request, for errors."""
        return f"messages.{message}.content.{part}"

    @property
    def offered_tools(self) -> list[AnyTool]:
        """The tools that the model may call, from `tools` or the older `functions`."""
        if self.functions:
            return [Tool(type="function", function=function) for function in self.functions]
        return self.tools or []

    @property
    def choice(self) -> ToolChoice | None:
        """The tool choice, from `tool_choice` or the older `function_call`."""
        return self.tool_choice or self.function_call

    @property
    def tool_names(self) -> ToolNames:
        """The client's names of the fields about tools."""
        return OLDER_NAMES if self.functions or self.function_call else ToolNames()

    @property
    def echo_text(self) -> str:
        """The text that `echo` puts before the answer: as in vLLM, the assistant's last message."""
        last = self.messages[-1]
        if not self.echo or last.role != "assistant":
            return ""
        return "\n".join(part.text for part in last.content or [] if part.text is not None)

    @property
    def template_arguments(self) -> dict[str, Any]:
        """Variables of the chat template except messages and tools; `chat_template_kwargs` takes precedence."""
        arguments: dict[str, Any] = {}
        if self.documents is not None:
            arguments["documents"] = self.documents
        effort = self.reasoning_effort
        if effort is None and self.reasoning is not None:
            effort = self.reasoning.effort or ("none" if self.reasoning.enabled is False else None)
        if effort is not None:
            arguments |= {"reasoning_effort": effort, "enable_thinking": effort != "none"}
        return arguments | (self.chat_template_kwargs or {})
