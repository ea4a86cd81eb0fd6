"""Tools of a chat request: their definitions for the chat template, and the parser of the model's calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lmi_core.errors import InvalidPayload
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_core.parsing.tool_calls.formats import ToolCallFormat, find_format
from lmi_core.parsing.tool_calls.marked_json import BareJson
from lmi_core.parsing.tool_calls.parser import FirstCall, IdentifiedCalls, NamedCall, ToolCallParser
from lmi_core.parsing.tool_calls.template_formats import template_format
from lmi_handlers.chat.custom_calls import CustomCalls
from lmi_handlers.fields.calls_schema import ANY_OBJECT, JsonObject, calls_schema
from lmi_handlers.fields.tool_fields import CHOICES, AnyTool, ChatCustomTool, ToolChoice, ToolNames

MakeParser = Callable[[], ToolCallParser]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The use of tools in one chat: definitions for the template, a guide, and a parser of calls."""

    definitions: list[JsonObject] | None = None  # for the chat template
    guide: JsonObject | None = None  # JSON schema that the whole output must follow
    parser: MakeParser | None = None  # None: all output is content
    named: bool = False
    markers: tuple[str, ...] = ()  # special tokens that the parser needs in the text


def use_tools(
    tools: Sequence[AnyTool],
    choice: ToolChoice | None,
    parallel: bool,
    template: str,
    call_format: str | None,
    automatic: bool,
    fields: ToolNames,
) -> ToolUse:
    """Choose how a chat uses tools.

    Raise InvalidPayload if the model does not support definitions or calls. `automatic` means that calls are parsed if
    `tool_choice` is auto.
    """
    kind = choice.mode if choice else "auto"
    if not tools and (kind not in ("auto", "none") or (choice and choice.allowed_tools)):
        raise InvalidPayload(f"`{fields.choice}` requires `{fields.tools}`. Given: {choice.type if choice else kind}")
    if not tools or kind == "none":
        return ToolUse()
    forced = kind == "required" or bool(choice and choice.named)  # calls by grammar, whatever the model is told
    if "tools" not in template and not forced:
        raise InvalidPayload(f"`{fields.tools}` are not supported by this model: its chat template does not use them")
    tools = choice.select(tools, fields) if choice else tools
    name = call_format or template_format(template)
    written = find_format(name) if name else None
    definitions = [tool.function.for_template for tool in tools]
    if choice and choice.named:
        use = _require_tool(tools, choice.named, definitions, fields)
    elif kind == "required":
        use = ToolUse(
            definitions, calls_schema([tool.function for tool in tools], parallel), partial(BareJson, _schemas(tools))
        )
    elif automatic:
        use = _automatic(tools, parallel, definitions, written, fields)
    else:
        return ToolUse(definitions)
    return _with_inputs(_with_call_ids(use, written), tools)


def _with_call_ids(use: ToolUse, written: ToolCallFormat | None) -> ToolUse:
    """Add ids to calls in the format that the chat template requires when the client returns them."""
    make, call_id = use.parser, written.call_id if written else None
    if make is None or call_id is None:
        return use
    return replace(use, parser=lambda: IdentifiedCalls(make(), call_id))


def _with_inputs(use: ToolUse, tools: Sequence[AnyTool]) -> ToolUse:
    """Turn the arguments in calls of custom tools into plain text."""
    make, custom = use.parser, {tool.custom.name for tool in tools if isinstance(tool, ChatCustomTool)}
    if make is None or not custom:
        return use
    return replace(use, parser=lambda: CustomCalls(make(), custom))


def _require_tool(tools: Sequence[AnyTool], name: str, definitions: list[JsonObject], fields: ToolNames) -> ToolUse:
    for tool in tools:
        if tool.function.name == name:
            return ToolUse(definitions, tool.function.parameters or ANY_OBJECT, partial(NamedCall, name), named=True)
    hint = did_you_mean(name, [*CHOICES, *(tool.function.name for tool in tools)])
    raise InvalidPayload(f"`{fields.choice}` must name one of `{fields.tools}`. Given: {name!r}.{hint}")


def _automatic(
    tools: Sequence[AnyTool],
    parallel: bool,
    definitions: list[JsonObject],
    written: ToolCallFormat | None,
    fields: ToolNames,
) -> ToolUse:
    if written is None:
        raise InvalidPayload(
            f"`{fields.choice}` cannot be auto: the chat template does not show how this model writes tool calls; "
            "set option.tool_call_parser"
        )
    parser = partial(written.make, _schemas(tools))
    return ToolUse(definitions, None, parser if parallel else lambda: FirstCall(parser()), markers=written.markers)


def _schemas(tools: Sequence[AnyTool]) -> dict[str, JsonObject]:
    """Return the JSON schema of each function's parameters."""
    return {tool.function.name: tool.function.parameters or ANY_OBJECT for tool in tools}
