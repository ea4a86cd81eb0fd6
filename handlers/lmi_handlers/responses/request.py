"""The request for a response."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from pydantic import ConfigDict, Field, JsonValue, model_validator

from lmi_core.errors import InvalidPayload
from lmi_handlers.chat.request import Effort
from lmi_handlers.fields.calls_schema import ANY_OBJECT
from lmi_handlers.fields.offered_tools import hosted_names
from lmi_handlers.fields.openai_tolerance import Refusal, refuse, take_fields
from lmi_handlers.fields.parameter_fields import RequestPart
from lmi_handlers.fields.passed import ChatFields
from lmi_handlers.responses.items import Items, ToolsItem
from lmi_handlers.responses.tools import TYPES, GivenChoice, OfferedTools

Includable = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]
LOG_PROBS: Includable = "message.output_text.logprobs"
REFUSED = MappingProxyType(
    {
        "background": Refusal("nothing is generated in the background; stream the answer, or wait for it", (False,)),
        "conversation": Refusal("conversations are not stored; use `previous_response_id` to continue a response"),
        "previous_input_messages": Refusal("earlier turns of a conversation belong in `input`", ([],)),
        "prompt": Refusal("prompts are not stored; use `instructions` and `input`"),
    }
)
# Fields of chats and completions that cannot appear in a response: the values without effect, and the reason.
NO_PLACE = MappingProxyType(
    {
        "n": Refusal("a response contains a single answer", (1,)),
        "prompt_logprobs": Refusal("a response has no field for its prompt", ()),
        "return_token_ids": Refusal("a response has no field for token ids", (False,)),
    }
)


class TextFormat(RequestPart):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema", description="With json_schema: the JSON schema.")
    strict: bool | None = Field(None, description="Ignored: the answer always follows the schema.")

    @model_validator(mode="after")
    def _check_schema(self) -> "TextFormat":
        if (self.type == "json_schema") != (self.schema_ is not None):
            raise ValueError("must have `schema` if and only if its `type` is json_schema")
        return self

    @property
    def json_guide(self) -> dict[str, Any] | None:
        """The JSON schema that the answer must follow; None if the format is not JSON."""
        return None if self.type == "text" else self.schema_ or ANY_OBJECT


class TextSettings(RequestPart):
    format: TextFormat | None = Field(None, description="The format: text, any JSON object, or JSON of a schema.")
    verbosity: Literal["low", "medium", "high"] | None = Field(None, description="Ignored.")


class ReasoningSettings(RequestPart):
    effort: Effort | None = Field(
        None, description="Passed to the chat template as `reasoning_effort`; none also as `enable_thinking`: false."
    )
    summary: Literal["auto", "concise", "detailed"] | None = Field(
        None, description="Ignored: reasoning is always returned."
    )
    generate_summary: Literal["auto", "concise", "detailed"] | None = Field(
        None, description="The older name of `summary`."
    )


EXAMPLE: dict[str, JsonValue] = {
    "instructions": "You are a helpful assistant.",
    "input": "What is deep learning?",
    "max_output_tokens": 256,
}


class ResponsesRequest(ChatFields):
    """A request for a response of OpenAI's, with the parameters that vLLM adds."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    input: Items = Field(min_length=1, description="A text, or a list of items: the new part of the conversation.")
    instructions: str | None = Field(None, description="The system message, for this request only.")
    previous_response_id: str | None = Field(None, description="The id of the stored response to continue.")
    store: bool | None = Field(None, description="Whether to store the response, to read or continue it by its id.")
    max_output_tokens: int | None = Field(None, ge=1, description="The maximum number of tokens to generate.")
    max_tokens: int | None = Field(None, ge=1, description="The name of `max_output_tokens` in chats.")
    include: list[Includable] | None = Field(None, description=f"{LOG_PROBS} requests each token's log probability.")
    top_logprobs: int | None = Field(
        None,
        ge=0,
        le=20,
        description="The number of most likely tokens to return at each position; implies their log probabilities.",
    )
    tools: OfferedTools | None = Field(
        None,
        description="The tools that the model may call: functions, custom tools and the client's search for "
        "tools. Beside these, other types are ignored.",
    )
    tool_choice: GivenChoice | None = Field(None, description="none, auto, required, or an object.")
    max_tool_calls: int | None = Field(None, ge=1, description="Ignored: the server has no tools of its own.")
    text: TextSettings | None = Field(None, description="The format of the answer.")
    reasoning: ReasoningSettings | None = Field(None, description="How much the model reasons before the answer.")
    truncation: Literal["disabled", "auto"] | None = Field(
        None, description="auto: leave out the oldest turns of a conversation that does not fit into the context."
    )
    metadata: dict[str, str] | None = Field(None, description="Returned in the response.")
    safety_identifier: str | None = Field(None, description="Returned in the response.")
    prompt_cache_key: str | None = Field(None, description="Returned in the response.")
    service_tier: str | None = Field(None, description="Ignored.")

    @model_validator(mode="after")
    def _check_truncation(self) -> "ResponsesRequest":
        if self.truncation == "auto" and self.truncate_prompt_tokens is not None:
            raise ValueError("`truncation` and `truncate_prompt_tokens` cannot be used together: both cut the prompt")
        return self

    @property
    def tool_lists(self) -> dict[str, OfferedTools]:
        """The lists of tools in the request, by their fields."""
        items = enumerate(self.input)
        added = {f"input.{index}.tools": item.tools for index, item in items if isinstance(item, ToolsItem)}
        return {"tools": self.tools or [], **added}

    @property
    def logprobs(self) -> bool:
        """Whether the answer has the log probability of each token."""
        return bool(self.top_logprobs) or LOG_PROBS in (self.include or ())


def read_fields(
    given: Mapping[str, Any], payload_type: type[ResponsesRequest], strict: bool
) -> tuple[ResponsesRequest, tuple[str, ...]]:
    """Return the request and the names of the ignored fields. Raise InvalidPayload if a field is invalid."""
    for name, refused in (REFUSED | NO_PLACE).items():
        refuse(name, given.get(name), refused)
    rest = {name: value for name, value in given.items() if name not in REFUSED}
    payload, ignored = take_fields(rest, payload_type, strict)
    hosted = hosted_names(payload.tool_lists, TYPES, strict)
    return payload, (*hosted, *_unreadable(payload, strict), *ignored)


def _unreadable(payload: ResponsesRequest, strict: bool) -> tuple[str, ...]:
    """Return the names of items that are dropped from the chat. Raise InvalidPayload for one if strict."""
    dropped = [(index, *found) for index, item in enumerate(payload.input) if (found := item.unreadable)]
    for index, _, reason in dropped if strict else ():
        raise InvalidPayload(f"`input.{index}` has no effect: {reason}. option.strict_parameters refuses it")
    return tuple(dict.fromkeys(f"input.{name}" for _, name, _ in dropped))
