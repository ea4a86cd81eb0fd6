"""Tool calls in generated text: a parser for each family of formats, and the table of the formats."""

from lmi_core.parsing.tool_calls.parser import (
    CallArguments,
    CallBegun,
    Content,
    FirstCall,
    IdentifiedCalls,
    NamedCall,
    Piece,
    ToolCallParser,
    coalesced,
)

__all__ = [
    "CallArguments",
    "CallBegun",
    "Content",
    "FirstCall",
    "IdentifiedCalls",
    "NamedCall",
    "Piece",
    "ToolCallParser",
    "coalesced",
]
