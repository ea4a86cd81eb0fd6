"""Structured output after reasoning."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

Format = Mapping[str, Any] | orjson.Fragment  # of xgrammar's structural tags, which vLLM supports too

BLANKS = {"type": "regex", "pattern": "[ \\n]{0,2}"}  # without a bound some models generate nothing else


def after_reasoning(markers: Sequence[str], guide: Format) -> dict[str, Any]:
    """Return a structural tag that allows any reasoning, followed by what the guide allows.

    `markers` begins with the text that begins the reasoning, which may then be left out, or with "" where the prompt
    has begun it; the others end it.
    """
    start, *ends = markers
    reasoning: dict[str, Any] = {"type": "tag", "begin": start, "content": {"type": "any_text"}, "end": ends}
    elements = [reasoning, BLANKS, guide]
    if start:
        elements = [BLANKS, {"type": "optional", "content": reasoning}, BLANKS, guide]
    return {"type": "structural_tag", "format": {"type": "sequence", "elements": elements}}
