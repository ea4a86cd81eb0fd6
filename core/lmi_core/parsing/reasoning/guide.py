"""Structured output after reasoning."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

Format = Mapping[str, Any] | orjson.Fragment  # xgrammar's structural tags, which vLLM also supports

BLANKS = {"type": "regex", "pattern": "[ \\n]{0,2}"}  # bounded, because some models would generate nothing else


def after_reasoning(markers: Sequence[str], guide: Format) -> dict[str, Any]:
    """Return a structural tag for any reasoning followed by text that the guide allows.

    The first of the `markers` may start the reasoning; it is "" if the prompt has started it. The others end
    it.
    """
    start, *ends = markers
    reasoning: dict[str, Any] = {"type": "tag", "begin": start, "content": {"type": "any_text"}, "end": ends}
    elements = [reasoning, BLANKS, guide]
    if start:
        elements = [BLANKS, {"type": "optional", "content": reasoning}, BLANKS, guide]
    return {"type": "structural_tag", "format": {"type": "sequence", "elements": elements}}
