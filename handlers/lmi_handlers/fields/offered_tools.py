"""The tools in a request: the client's own, and those of hosted services, which are dropped.

Coding agents offer the hosted service's searches, images and shells in addition to their own tools, and work without
them. A request with hosted tools only cannot be served.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel, Discriminator

from lmi_core.errors import InvalidPayload
from lmi_core.payloads.payload import quote
from lmi_handlers.fields.parameter_fields import RequestPart

NO_TOOLS = "this server has no built-in tools"
OWN, HOSTED = "<own>", "<hosted>"  # internal tags of tools
SEARCH: Final = "tool_search"  # the type of a tool that a hosted service runs unless its `execution` is client

T = TypeVar("T", bound=BaseModel)
ToolLists = Mapping[str, Sequence[BaseModel]]  # the lists of tools in a request, by their fields


class HostedTool(RequestPart):
    """A tool that a hosted service runs; only its type is read."""

    type: str


def by_type(own: str, *further: str) -> Discriminator:
    """Return a discriminator for tools: the client's own have the type `own` or none; each `further` type is a tag."""

    def tag(given: Any) -> str:
        if isinstance(given, HostedTool):
            return HOSTED
        members = given if isinstance(given, dict) else vars(given) if isinstance(given, BaseModel) else {}
        kind = members.get("type")
        if kind in further and (kind != SEARCH or members.get("execution") == "client"):
            return f"<{kind}>"
        return HOSTED if isinstance(kind, str) and kind != own else OWN

    return Discriminator(tag)


def own_tools(tools: Iterable[T | HostedTool]) -> list[T]:
    return [tool for tool in tools if not isinstance(tool, HostedTool)]


def check_own_tools(lists: ToolLists, own: str) -> None:
    """Raise InvalidPayload if a request offers tools, but none of the client's own."""
    offered = next(((field, tools) for field, tools in lists.items() if tools), None)
    if offered and not any(map(own_tools, lists.values())):
        field, tools = offered
        given = quote([tool.model_dump() for tool in tools])
        raise InvalidPayload(f"`{field}` must have one of the type {own}: {NO_TOOLS}. Given: {given}")


def hosted_names(lists: ToolLists, own: str, strict: bool) -> tuple[str, ...]:
    """Return the names of hosted tools for the header of ignored fields. Raise InvalidPayload for one if strict."""
    hosted = [
        (f"{field}.{index}.type", tool.type)
        for field, tools in lists.items()
        for index, tool in enumerate(tools)
        if isinstance(tool, HostedTool)
    ]
    for place, kind in hosted if strict else ():
        raise InvalidPayload(f"`{place}` must be {own}: {NO_TOOLS}. Given: {quote(kind)}")
    return tuple(dict.fromkeys(f"tools.{kind}" for _, kind in hosted))
